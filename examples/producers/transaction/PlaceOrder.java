// Place an order and the task that closes it, in one transaction: JDBC.

import java.net.URI;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;

public class PlaceOrder {
    static String placeOrder(Connection connection, String orderId) throws SQLException {
        connection.setAutoCommit(false);
        try (var enqueue = connection.prepareStatement(
                 "SELECT tidegate.enqueue('order.close.timeout', ?, due_at => now() + interval '1 second')");
             var insert = connection.prepareStatement("INSERT INTO orders (id, close_task_id) VALUES (?, ?)")) {
            enqueue.setString(1, "{\"orderId\": \"" + orderId + "\", \"amount\": \"89.90\"}");
            try (var row = enqueue.executeQuery()) {
                row.next();
                String taskId = row.getString(1);
                insert.setString(1, orderId);
                insert.setString(2, taskId);
                insert.executeUpdate();
                connection.commit();
                return taskId;
            }
        } catch (SQLException e) {
            connection.rollback();
            throw e;
        }
    }

    public static void main(String[] args) throws Exception {
        var url = URI.create(System.getenv("DATABASE_URL"));
        var user = url.getUserInfo().split(":", 2);
        var jdbc = "jdbc:postgresql://" + url.getHost() + ":" + url.getPort() + url.getPath();
        try (var connection = DriverManager.getConnection(jdbc, user[0], user[1])) {
            System.out.println(placeOrder(connection, args[0]));
        }
    }
}
