//! A management API that takes the connection and never answers: said while it is waited for, with the way out.

use std::net::TcpListener;

use crate::run::{ORDER, Ran, Tidegate};

#[test]
fn who_waits_for_the_management_api_says_so() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    // Accepted and held open, all of them.
    std::thread::spawn(move || silent.incoming().collect::<Vec<_>>());
    let run = |arguments: &[&str]| {
        Tidegate::new()
            .file("topology/platform.toml", "")
            .file("topology/order.toml", ORDER)
            .env("AMQP_URL", "amqp://u:p@127.0.0.1:1/v")
            .env("MANAGEMENT_URL", &format!("http://tide:s3cret@{address}"))
            .env("TIDEGATE_MANAGEMENT_TIMEOUT", "7s")
            .run(arguments)
    };
    let waiting = format!(
        "waiting for the management API at http://tide:***@{address}/ to answer GET overview; it has 7s (management.timeout) …"
    );
    let check = |ran: &Ran, said: &str| {
        assert_eq!((ran.code, ran.stdout.as_str()), (7, ""), "{ran:?}");
        let lines = ran
            .stderr
            .lines()
            .filter(|line| line.contains("waiting for"))
            .collect::<Vec<_>>();
        assert_eq!(lines, [said], "{ran:?}");
        assert!(
            ran.stderr.contains("no answer in time") && !ran.stderr.contains("s3cret"),
            "{ran:?}"
        );
    };
    std::thread::scope(|scope| {
        let verbs: [&[&str]; 4] = [
            &["topology", "plan"],
            &["topology", "apply"],
            &["topology", "migrate", "order.close.queue"],
            &["topology", "verify"],
        ];
        for verb in verbs {
            let (run, check, waiting) = (&run, &check, &waiting);
            scope.spawn(move || check(&run(verb), waiting));
        }
        let json = serde_json::json!({"message": waiting}).to_string();
        let (run, check) = (&run, &check);
        scope.spawn(move || check(&run(&["topology", "plan", "--json"]), &json));
    });
}
