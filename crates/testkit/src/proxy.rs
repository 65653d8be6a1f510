//! A TCP proxy between a program and a service: it goes silent, forgets connections, and leads elsewhere.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::JoinHandle,
};

/// What all connections go by.
#[derive(Clone, Debug)]
struct Rules {
    target: String,
    /// Nothing is passed on, and no new connection reaches the service; none is closed.
    silent: bool,
    /// Connections with a lower number are never passed on again, and not closed either.
    forgotten: u64,
    /// Connections with a lower number are closed.
    closed: u64,
}

/// Listens on a port of its own until dropped; its connections end with it.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    rules: watch::Sender<Rules>,
    opened: Arc<AtomicU64>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// Starts one before the service that `url` names. Runs on the runtime of the caller.
    pub async fn before(url: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let rules = Rules {
            target: parts(url).1.to_owned(),
            silent: false,
            forgotten: 0,
            closed: 0,
        };
        let (rules, obeyed) = watch::channel(rules);
        let opened = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&opened);
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let number = count.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(connect(client, number, obeyed.clone()));
            }
        });
        Self {
            address,
            rules,
            opened,
            accepting,
        }
    }

    /// `url` with this proxy's address in it.
    pub fn url(&self, url: &str) -> String {
        let (before, _, after) = parts(url);
        format!("{before}{}{after}", self.address)
    }

    /// Goes silent: nothing is passed on any more and nothing is closed; new connections are accepted and never answered.
    pub fn silence(&self) {
        self.rules.send_modify(|rules| rules.silent = true);
    }

    /// Passes everything on again, also what arrived meanwhile.
    pub fn resume(&self) {
        self.rules.send_modify(|rules| rules.silent = false);
    }

    /// What is connected now stays so for ever without another byte; new connections work. So does a firewall that has
    /// forgotten them.
    pub fn forget_connections(&self) {
        let opened = self.opened();
        self.rules.send_modify(|rules| rules.forgotten = opened);
    }

    /// Closes what is connected now.
    pub fn close_connections(&self) {
        let opened = self.opened();
        self.rules.send_modify(|rules| rules.closed = opened);
    }

    /// Leads new connections to the service that `url` names; those that stand stay where they are.
    pub fn lead_to(&self, url: &str) {
        let target = parts(url).1.to_owned();
        self.rules.send_modify(|rules| rules.target = target);
    }

    /// How many connections were ever accepted.
    pub fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// A URL as what stands before host and port, these, and the rest.
fn parts(url: &str) -> (&str, &str, &str) {
    let authority = url.find("://").map_or(0, |at| at + 3);
    let end = url[authority..]
        .find(['/', '?'])
        .map_or(url.len(), |at| authority + at);
    let host = url[authority..end]
        .rfind('@')
        .map_or(authority, |at| authority + at + 1);
    (&url[..host], &url[host..end], &url[end..])
}

async fn connect(mut client: TcpStream, number: u64, mut rules: watch::Receiver<Rules>) {
    // Whoever connects in silence waits, as for a machine that drops everything.
    while rules.borrow_and_update().silent {
        if rules.changed().await.is_err() {
            return;
        }
    }
    let target = rules.borrow().target.clone();
    let Ok(service) = TcpStream::connect(target).await else {
        let _ = client.shutdown().await;
        return;
    };
    let _ = (client.set_nodelay(true), service.set_nodelay(true));
    let ((from_client, to_client), (from_service, to_service)) = (client.into_split(), service.into_split());
    // Whichever ends first takes the other with it.
    tokio::select! {
        () = pass_on(from_client, to_service, number, rules.clone()) => {}
        () = pass_on(from_service, to_client, number, rules) => {}
    }
}

async fn pass_on(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    number: u64,
    mut rules: watch::Receiver<Rules>,
) {
    let mut bytes = vec![0; 64 * 1024];
    loop {
        let (silent, closed) = {
            let rules = rules.borrow_and_update();
            (rules.silent || number < rules.forgotten, number < rules.closed)
        };
        if closed {
            return;
        }
        // In silence nothing is read either: an end that closes goes unnoticed on the other side.
        let read = async {
            if silent {
                std::future::pending().await
            } else {
                from.read(&mut bytes).await
            }
        };
        let read = tokio::select! {
            changed = rules.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
            read = read => read,
        };
        match read {
            Ok(0) | Err(_) => return,
            Ok(count) => {
                if to.write_all(&bytes[..count]).await.is_err() {
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_and_port_are_found_in_any_url() {
        assert_eq!(
            parts("postgres://u:p%40@host:5432/db?x=1"),
            ("postgres://u:p%40@", "host:5432", "/db?x=1")
        );
        assert_eq!(parts("amqp://h:1"), ("amqp://", "h:1", ""));
        assert_eq!(parts("h:1/x"), ("", "h:1", "/x"));
    }
}
