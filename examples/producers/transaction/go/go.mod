module github.com/tidegate/tidegate/examples/producers/transaction/go

go 1.19

require github.com/jackc/pgx/v5 v5.5.5
