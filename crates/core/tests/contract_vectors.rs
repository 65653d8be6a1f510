//! The vectors of `conformance/contract/`, as every other language runs them.

#![allow(clippy::unwrap_used, reason = "a test may panic, its helper functions too")]

use std::{collections::BTreeMap, fs};

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use tidegate_core::contract::{
    Contract, Taken, Verdict, Versions,
    compatibility::{self, Direction, Mode},
    verdict,
};

fn vectors<T: DeserializeOwned>(file: &str, at_least: usize) -> Vec<T> {
    let path = format!("{}/../../conformance/contract/{file}", env!("CARGO_MANIFEST_DIR"));
    let vectors: Vec<T> = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    assert!(
        vectors.len() >= at_least,
        "{file}: only {} vectors",
        vectors.len()
    );
    vectors
}

/// A contract as text, so that no number of it passes through a float.
fn contract(text: &RawValue) -> Contract {
    Contract::read(text.get().as_bytes()).unwrap_or_else(|why| panic!("{why}: {text}"))
}

fn versions(contracts: &BTreeMap<String, Box<RawValue>>) -> Versions {
    let mut versions = Versions::default();
    for (version, text) in contracts {
        versions.insert(version.parse().unwrap(), contract(text));
    }
    versions
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
struct Broken {
    pointer: String,
    rule: String,
}

fn broken(pointer: &str, rule: &str) -> Broken {
    Broken {
        pointer: pointer.to_owned(),
        rule: rule.to_owned(),
    }
}

/// Collects what differs, so that a change shows all of its effects at once.
#[derive(Default)]
struct Failures(Vec<String>);

impl Failures {
    fn compare<T: PartialEq + std::fmt::Debug>(&mut self, name: &str, got: T, want: T) {
        if got != want {
            self.0.push(format!("{name}\n   want {want:?}\n    got {got:?}"));
        }
    }

    fn end(self) {
        assert!(self.0.is_empty(), "{}", self.0.join("\n"));
    }
}

#[test]
fn contracts_are_read_or_refused_by_place_and_problem() {
    #[derive(Deserialize)]
    struct Vector {
        name: String,
        contract: String,
        error: Option<Refused>,
    }
    #[derive(Deserialize)]
    struct Refused {
        pointer: Option<String>,
        problem: String,
    }
    let mut failures = Failures::default();
    for vector in vectors::<Vector>("read.json", 60) {
        let got = Contract::read(vector.contract.as_bytes()).err();
        let got = got.map(|error| (error.pointer.clone(), error.problem.as_str().to_owned()));
        // Where a bomb goes off is each reader's own.
        let want = vector.error.map(|error| {
            let anywhere = || {
                got.as_ref()
                    .map(|(pointer, _)| pointer.clone())
                    .unwrap_or_default()
            };
            (error.pointer.unwrap_or_else(anywhere), error.problem)
        });
        failures.compare(&vector.name, got, want);
    }
    failures.end();
}

#[test]
fn payloads_break_the_rules_they_break() {
    #[derive(Deserialize)]
    struct Group {
        contract: Box<RawValue>,
        payloads: Vec<Vector>,
    }
    #[derive(Deserialize)]
    struct Vector {
        name: String,
        payload: String,
        violations: Vec<Broken>,
    }
    let mut failures = Failures::default();
    for group in vectors::<Group>("validate.json", 4) {
        let contract = contract(&group.contract);
        for vector in group.payloads {
            let got = contract.validate(&vector.payload);
            let got: Vec<_> = got.iter().map(|v| broken(&v.pointer, v.rule.as_str())).collect();
            failures.compare(&vector.name, got, vector.violations);
        }
    }
    failures.end();
}

#[test]
fn our_rules_on_contracts_find_what_they_find() {
    #[derive(Deserialize)]
    struct Vector {
        name: String,
        contract: Box<RawValue>,
        findings: Vec<Broken>,
    }
    let mut failures = Failures::default();
    for vector in vectors::<Vector>("findings.json", 10) {
        let got = contract(&vector.contract).findings();
        let got: Vec<_> = got.iter().map(|f| broken(&f.pointer, f.rule.as_str())).collect();
        failures.compare(&vector.name, got, vector.findings);
    }
    failures.end();
}

#[test]
fn changes_break_whom_they_break() {
    #[derive(Deserialize)]
    struct Vector {
        name: String,
        old: Box<RawValue>,
        new: Box<RawValue>,
        backward: Vec<Broken>,
        forward: Vec<Broken>,
    }
    let mut failures = Failures::default();
    for vector in vectors::<Vector>("compatibility.json", 50) {
        let mut versions = Versions::default();
        versions.insert(1, contract(&vector.old));
        versions.insert(2, contract(&vector.new));
        let found = |mode, direction| {
            let changes = compatibility::check(&versions, 2, mode);
            assert!(changes.iter().all(|c| c.direction == direction && c.against == 1));
            let changes = changes.iter();
            changes
                .map(|c| broken(&c.pointer, c.rule.as_str()))
                .collect::<Vec<_>>()
        };
        let backward = found(Mode::Backward, Direction::Backward);
        let forward = found(Mode::Forward, Direction::Forward);
        failures.compare(&format!("{}: backward", vector.name), backward, vector.backward);
        failures.compare(&format!("{}: forward", vector.name), forward, vector.forward);
    }
    failures.end();
}

#[test]
fn payloads_become_those_of_a_newer_version() {
    #[derive(Deserialize)]
    struct Group {
        contracts: BTreeMap<String, Box<RawValue>>,
        payloads: Vec<Vector>,
    }
    #[derive(Deserialize)]
    struct Vector {
        name: String,
        payload: String,
        from: u32,
        to: u32,
        result: Option<String>,
        error: Option<String>,
    }
    let mut failures = Failures::default();
    for group in vectors::<Group>("upcast.json", 2) {
        let versions = versions(&group.contracts);
        for vector in group.payloads {
            let got = versions.upcast(&vector.payload, vector.from, vector.to);
            let got = got.map_err(|why| why.as_str().to_owned());
            let want = vector.result.ok_or_else(|| vector.error.unwrap_or_default());
            failures.compare(&vector.name, got, want);
        }
    }
    failures.end();
}

#[test]
fn a_worker_takes_up_casts_puts_off_or_parks() {
    #[derive(Deserialize)]
    struct Vector {
        name: String,
        version: u32,
        taken: Vec<u32>,
        contracts: Option<BTreeMap<String, Box<RawValue>>>,
        verdict: String,
        to: Option<u32>,
    }
    let mut failures = Failures::default();
    for vector in vectors::<Vector>("versions.json", 9) {
        let known = vector.contracts.as_ref().map(versions);
        let got = verdict(vector.version, &Taken::new(vector.taken).unwrap(), known.as_ref());
        let to = match got {
            Verdict::Upcast(to) => Some(to),
            _ => None,
        };
        failures.compare(
            &vector.name,
            (got.as_str(), to),
            (vector.verdict.as_str(), vector.to),
        );
    }
    failures.end();
}
