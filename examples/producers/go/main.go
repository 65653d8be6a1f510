// First task, in Go: publish one task for now and one for later, and know that both are safe.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Task is the envelope. Ids, amounts and times are strings, so that no language changes them.
type Task struct {
	TaskID   string         `json:"taskId"`
	TaskType string         `json:"taskType"`
	Payload  map[string]any `json:"payload"`
	Producer string         `json:"producer,omitempty"`
}

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	url := os.Getenv("AMQP_URL")
	if url == "" {
		return errors.New("AMQP_URL is not set; it looks like amqp://user:password@localhost:5672/%2f")
	}
	connection, err := amqp.Dial(url)
	if err != nil {
		return err
	}
	defer connection.Close()
	channel, err := connection.Channel()
	if err != nil {
		return err
	}
	if err := channel.Confirm(false); err != nil {
		return err
	}
	returns := channel.NotifyReturn(make(chan amqp.Return, 1))

	now := Task{
		TaskID:   fmt.Sprintf("go-%d-now", time.Now().UnixNano()),
		TaskType: "order.close.timeout",
		Payload:  map[string]any{"orderId": "1001", "amount": "89.90"},
		Producer: "first-task-go",
	}
	// For now: task.exchange, and the task type as routing key.
	if err := publish(channel, returns, "task.exchange", now, nil); err != nil {
		return err
	}
	// For later: task.ingress, and the header x-delay in milliseconds.
	later := now
	later.TaskID = fmt.Sprintf("go-%d-later", time.Now().UnixNano())
	return publish(channel, returns, "task.ingress", later, amqp.Table{"x-delay": int64(5_000)})
}

// publish returns nil once the task is on a durable queue.
func publish(channel *amqp.Channel, returns <-chan amqp.Return, exchange string, task Task, headers amqp.Table) error {
	body, err := json.Marshal(task)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	const mandatory, immediate = true, false
	confirm, err := channel.PublishWithDeferredConfirmWithContext(ctx, exchange, task.TaskType, mandatory, immediate,
		amqp.Publishing{
			ContentType:  "application/json",
			DeliveryMode: amqp.Persistent,
			MessageId:    task.TaskID,
			Type:         task.TaskType,
			Headers:      headers,
			Body:         body,
		})
	if err != nil {
		return err
	}
	acked, err := confirm.WaitContext(ctx)
	if err != nil {
		return fmt.Errorf("no confirm, so %s may or may not be stored; send it again with the same id: %w", task.TaskID, err)
	}
	// A message that no queue takes comes back before its confirm.
	select {
	case returned := <-returns:
		return fmt.Errorf("%s came back: %s", returned.MessageId, returned.ReplyText)
	default:
	}
	if !acked {
		return fmt.Errorf("the broker refused %s; try again later", task.TaskID)
	}
	log.Printf("%s is safe on %s", task.TaskID, exchange)
	return nil
}
