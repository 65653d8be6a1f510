//! Why a connection to the broker was not made, as a value that can be decided by.
//!
//! May import: `broker`, lapin, core.

use std::{error::Error as _, io};

use lapin::{
    ErrorKind,
    protocol::{AMQPErrorKind, AMQPHardError, AMQPSoftError},
};
use tidegate_core::doctor::{
    reach::{Unreached, of_vhost},
    tls,
};

use super::connection::LinkError;

/// What `error`, of an attempt to connect, says.
pub fn of(error: &LinkError) -> Unreached {
    match error {
        LinkError::Timeout(waited) => Unreached::Silent(*waited),
        LinkError::Name(_) => Unreached::Other(error.to_string()),
        LinkError::Broker(error) => of_lapin(error),
    }
}

fn of_lapin(error: &lapin::Error) -> Unreached {
    match error.kind() {
        ErrorKind::ProtocolError(refusal) => {
            let said = refusal.get_message().to_string();
            match refusal.kind() {
                AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED) => Unreached::Login(said),
                AMQPErrorKind::Hard(AMQPHardError::NOTALLOWED) => of_vhost(&said),
                _ => Unreached::Other(said),
            }
        }
        ErrorKind::ParsingError(_) | ErrorKind::InvalidProtocolVersion(_) => Unreached::OtherProtocol,
        ErrorKind::IOError(error) => of_io(error),
        _ => Unreached::Other(error.to_string()),
    }
}

fn of_io(error: &io::Error) -> Unreached {
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(inner) = cause {
        let more = inner.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = inner.source();
    }
    if let Some(tls) = tls::read(&text) {
        return Unreached::Tls(tls);
    }
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Unreached::Refused,
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::UnexpectedEof => Unreached::Dropped,
        _ => Unreached::Other(text),
    }
}
