// Place an order and the task that closes it, in one transaction: pgx.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
)

func placeOrder(ctx context.Context, connection *pgx.Conn, orderID string) (taskID string, err error) {
	payload, err := json.Marshal(map[string]string{"orderId": orderID, "amount": "89.90"})
	if err != nil {
		return "", err
	}
	// Commits if the function returns nil, rolls back if it returns an error.
	err = pgx.BeginFunc(ctx, connection, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx,
			"SELECT tidegate.enqueue('order.close.timeout', $1::text, due_at => now() + interval '1 second')",
			string(payload)).Scan(&taskID)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "INSERT INTO orders (id, close_task_id) VALUES ($1, $2)", orderID, taskID)
		return err
	})
	return taskID, err
}

func main() {
	ctx := context.Background()
	connection, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close(ctx)
	taskID, err := placeOrder(ctx, connection, os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(taskID)
}
