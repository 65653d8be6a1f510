//! `tidegate contract check --against git:REVISION`.

use std::process::Command;

use crate::run::Tidegate;

const ONE: &str = r#"{"type": "object"}"#;

fn git(dir: &Tidegate, arguments: &[&str]) {
    let ran = Command::new("git")
        .args([
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@example.org",
            "-c",
            "commit.gpgsign=false",
        ])
        .args(arguments)
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert!(ran.status.success(), "{ran:?}");
}

/// A repository with one contract at tag `v1`, below `services/shop`.
fn repository() -> Tidegate {
    let dir = Tidegate::new()
        .file("contracts/order.close/1.json", ONE)
        .file("contracts/order.close/notes.md", "")
        .file("contracts/.hidden/1.json", "");
    git(&dir, &["init", "-q"]);
    git(&dir, &["add", "."]);
    git(&dir, &["commit", "-q", "-m", "one"]);
    git(&dir, &["tag", "v1"]);
    dir
}

#[test]
fn what_is_at_a_revision_is_published() {
    let dir = repository();
    for against in ["git:v1", "git:HEAD", "git:v1:contracts", "git:HEAD:contracts/"] {
        let ran = dir.run(&["contract", "check", "--against", against]);
        assert_eq!(
            (ran.code, ran.stdout.as_str()),
            (0, "1 file, no findings\n"),
            "{against}: {ran:?}"
        );
    }
    let dir = dir.file(
        "contracts/order.close/1.json",
        r#"{"type": "object", "title": "x"}"#,
    );
    let ran = dir.run(&["contract", "check", "--against", "git:v1"]);
    assert!(
        ran.code == 3 && ran.stdout.contains("(published_changed)"),
        "{ran:?}"
    );
    std::fs::remove_file(dir.path().join("contracts/order.close/1.json")).unwrap();
    let dir = dir.file("contracts/order.paid/1.json", ONE);
    let ran = dir.run(&["contract", "check", "--against", "git:v1"]);
    assert!(
        ran.code == 3 && ran.stdout.contains("(published_removed)"),
        "{ran:?}"
    );
}

#[test]
fn a_file_at_a_revision_that_is_no_contract_is_told_of() {
    let large = format!("{{\"title\": \"{}\"}}", "x".repeat(70_000));
    let dir = repository()
        .file("contracts/a.b/1.json", &large)
        .file("contracts/a.b/2.json", "[\n");
    git(&dir, &["add", "."]);
    git(&dir, &["commit", "-q", "-m", "two"]);
    let ran = dir.run(&["contract", "check", "--against", "git:HEAD"]);
    for found in [
        "git:HEAD:contracts/a.b/1.json:1: file: ",
        "git:HEAD:contracts/a.b/2.json:",
    ] {
        assert!(ran.code == 3 && ran.stdout.contains(found), "{ran:?}");
    }
}

#[test]
fn what_git_does_not_have_is_said_clearly() {
    let dir = repository();
    for (against, what) in [
        ("git:v2", "there is no revision v2"),
        ("git:v1:none", "revision v1 has no directory none"),
        ("git:v1:contracts/order.close/1.json", "has no directory"),
        ("git:v1:../..", "has no directory"),
        ("git:", "is no revision that can be asked for"),
        ("git:--help", "is no revision that can be asked for"),
        ("git:v1:-x", "is no revision that can be asked for"),
        ("git:v1\u{1b}", "is no revision that can be asked for"),
    ] {
        let ran = dir.run(&["contract", "check", "--against", against]);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{against}: {ran:?}");
        assert!(ran.stderr.contains(what), "{against}: {ran:?}");
    }
    // There is such a directory, whose files are called like no contract.
    let ran = dir.run(&["contract", "check", "--against", "git:v1:contracts/order.close"]);
    assert!(ran.code == 3 && ran.stdout.contains("(path)"), "{ran:?}");
    let elsewhere = Tidegate::new().file("contracts/order.close/1.json", ONE);
    let ran = elsewhere.run(&["contract", "check", "--against", "git:v1"]);
    assert!(
        ran.code == 2 && ran.stderr.contains("git finds no repository here"),
        "{ran:?}"
    );
    let ran = repository()
        .env("PATH", "/nonexistent")
        .run(&["contract", "check", "--against", "git:v1"]);
    assert!(
        ran.code == 1 && ran.stderr.contains("git can't be started"),
        "{ran:?}"
    );
}
