module github.com/tidegate/tidegate/examples/producers/go

go 1.23.0

require github.com/rabbitmq/amqp091-go v1.16.0
