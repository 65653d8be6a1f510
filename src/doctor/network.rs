//! From a name to an open port, step by step, so that each step can be blamed by itself.
//!
//! May import: core, tokio's network.

use std::{io, net::SocketAddr, time::Duration};

use tidegate_core::doctor::reach::{Target, Unreached};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, lookup_host},
    time::timeout,
};

use super::ANSWER;

/// Longest wait for what comes after a failure.
const SECOND_LOOK: Duration = Duration::from_secs(2);
/// First byte of a TLS alert.
const TLS_ALERT: u8 = 21;

/// Whether the target's host has an address on which its port is open.
pub(super) async fn reach(target: &Target) -> Result<(), Unreached> {
    open(target).await.map(drop)
}

/// Whether the port answers a plain `hello` as a TLS server does.
pub(super) async fn speaks_tls(target: &Target, hello: &[u8]) -> bool {
    let asked = async {
        let mut stream = open(target).await.ok()?;
        stream.write_all(hello).await.ok()?;
        stream.read_u8().await.ok()
    };
    matches!(timeout(SECOND_LOOK, asked).await, Ok(Some(TLS_ALERT)))
}

async fn open(target: &Target) -> Result<TcpStream, Unreached> {
    let found = timeout(ANSWER, lookup_host((target.host.as_str(), target.port))).await;
    let addresses: Vec<SocketAddr> = match found {
        Err(_) => {
            return Err(Unreached::UnknownHost(format!(
                "no answer within {} s",
                ANSWER.as_secs()
            )));
        }
        Ok(Err(why)) => return Err(Unreached::UnknownHost(why.to_string())),
        Ok(Ok(addresses)) => addresses.collect(),
    };
    if addresses.is_empty() {
        return Err(Unreached::UnknownHost("no address".to_owned()));
    }
    // One name may have addresses of which some work; a shorter wait for each leaves time for the next.
    let each = ANSWER / u32::try_from(addresses.len().min(4)).unwrap_or(1);
    let mut why = Unreached::Silent(ANSWER);
    for address in addresses.into_iter().take(4) {
        match timeout(each, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => why = of_io(&error),
            Err(_) => why = Unreached::Silent(each),
        }
    }
    Err(why)
}

fn of_io(error: &io::Error) -> Unreached {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Unreached::Refused,
        io::ErrorKind::TimedOut => Unreached::Silent(ANSWER),
        _ => Unreached::NoRoute(error.to_string()),
    }
}
