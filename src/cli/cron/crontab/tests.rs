//! Crontabs as people write them.

use super::*;

fn reading(command_type: Option<&'static str>) -> Reading<'static> {
    Reading {
        zone: "UTC",
        command_type,
    }
}

fn entries(text: &str, command_type: Option<&'static str>) -> Vec<[String; 5]> {
    let crontab = read(text, &reading(command_type));
    assert_eq!(crontab.mistakes, []);
    let entries = crontab.entries.into_iter();
    entries
        .map(|e| {
            [
                e.name,
                e.expression,
                e.zone,
                e.task_type,
                e.payload.get().to_owned(),
            ]
        })
        .collect()
}

fn mistakes(text: &str, command_type: Option<&'static str>) -> Vec<(usize, String)> {
    let crontab = read(text, &reading(command_type));
    crontab.mistakes.into_iter().map(|m| (m.line, m.text)).collect()
}

#[test]
fn schedules_types_and_payloads() {
    let text = "\u{feff}# a comment\r\n\
        0 9 * * mon-fri report.make {\"a\": \"x  y\"}\r\n\
        \n\
        \t*/10 * * * * *\torder.close   {}\n\
        @daily stock.count\n\
        CRON_TZ = \"Europe/Berlin\"\n\
        # Name: last friday\n\
        # why it is there\n\
        0 9 * * FRIL report.make {}\n\
        0 0 9 * * 5#2 a.b {}\n\
        TZ=Asia/Tokyo\n\
        @hourly c.d";
    let expected = [
        [
            "report.make",
            "0 9 * * mon-fri",
            "UTC",
            "report.make",
            "{\"a\": \"x  y\"}",
        ],
        ["order.close", "*/10 * * * * *", "UTC", "order.close", "{}"],
        ["stock.count", "@daily", "UTC", "stock.count", "{}"],
        [
            "last friday",
            "0 9 * * FRIL",
            "Europe/Berlin",
            "report.make",
            "{}",
        ],
        ["a.b", "0 0 9 * * 5#2", "Europe/Berlin", "a.b", "{}"],
        ["c.d", "@hourly", "Europe/Berlin", "c.d", "{}"],
    ];
    assert_eq!(entries(text, None), expected);
    assert!(read(text, &reading(None)).zone_assumed);
    assert!(!read("TZ=Asia/Tokyo\n@daily a.b", &reading(None)).zone_assumed);
    assert_eq!(entries("TZ=Asia/Tokyo\n@daily a.b", None)[0][2], "Asia/Tokyo");
}

#[test]
fn shell_commands_become_tasks_of_one_type() {
    let text = "# name: backup\n0 3 * * * /usr/bin/backup --day $(date +\\%u) \"x\"\n\
        # name: script\n0 4 * * * backup.sh\n\
        # name: seconds\n0 0 5 * * 7 run me\n\
        6 * * * * report.make {\"a\":1}\n";
    let notes = read(text, &reading(Some("shell.run"))).notes;
    assert_eq!((notes.len(), notes[0].line), (1, 4), "{notes:?}");
    let command = |command: &str| serde_json::json!({ "command": command }).to_string();
    let expected = [
        [
            "backup",
            "0 3 * * *",
            "UTC",
            "shell.run",
            &command("/usr/bin/backup --day $(date +%u) \"x\""),
        ],
        ["script", "0 4 * * *", "UTC", "shell.run", &command("backup.sh")],
        ["seconds", "0 0 5 * * 7", "UTC", "shell.run", &command("run me")],
        ["report.make", "6 * * * *", "UTC", "report.make", "{\"a\":1}"],
    ];
    assert_eq!(entries(text, Some("shell.run")), expected);
    let refused = mistakes("0 3 * * * mail x%line\n", Some("shell.run"));
    assert!(
        refused[0].1.contains("write \\% for a percent sign"),
        "{refused:?}"
    );
    let refused = mistakes("0 3 * * * /usr/bin/backup\n1 3 * * * backup.sh -v", None);
    assert!(
        refused
            .iter()
            .all(|(_, text)| text.contains("--command-type TYPE")),
        "{refused:?}"
    );
    assert_eq!(refused.len(), 2);
}

#[test]
fn every_mistake_is_told_with_its_line() {
    let text = "SHELL=/bin/sh\n\
        0 9 * * report.make {}\n\
        0 0 30 2 * a.b {}\n\
        @reboot a.c {}\n\
        CRON_TZ=Mars/Phobos\n\
        0 9 * * * a.d [1\n\
        # name: one\n\
        # name: two\n\
        0 9 * * * a.e {}\n\
        0 8 * * *\n\
        0 9 * * * a.f {}\n\
        0 9 * * * a.f {}\n\
        TZ=UTC 0 9 * * * a.g\n\
        */90 * * * * a.h {}\n\
        # name: three\n";
    let found = mistakes(text, None);
    let expected = [
        (2, "report.make"),
        (3, "can never fire"),
        (4, "@reboot"),
        (5, "unknown time zone \"Mars/Phobos\""),
        (6, "no JSON"),
        (7, "the name \"one\" has no schedule below it"),
        (10, "after the schedule stands what to do"),
        (12, "that of line 11 already"),
        (13, "TZ= on a line of its own"),
        (14, "a step is 1-59"),
        (15, "the name \"three\""),
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for ((line, text), (expected_line, part)) in found.iter().zip(expected) {
        assert!(*line == expected_line && text.contains(part), "{line}: {text}");
    }
    let notes = read(text, &reading(None)).notes;
    assert_eq!((notes.len(), notes[0].line), (1, 1));
}
