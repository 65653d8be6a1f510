//! Just enough AMQP 0-9-1 to publish what no decent client library would: names that are not UTF-8.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

pub(crate) struct RawAmqp {
    stream: TcpStream,
}

impl RawAmqp {
    /// Connects and opens channel 1. `url` is `amqp://user:password@host:port/vhost`.
    pub(crate) async fn connect(url: &str) -> Self {
        let rest = url.strip_prefix("amqp://").unwrap();
        let (credentials, rest) = rest.split_once('@').unwrap();
        let (user, password) = credentials.split_once(':').unwrap();
        let (host, vhost) = rest.split_once('/').unwrap();
        let mut raw = Self {
            stream: TcpStream::connect(host).await.unwrap(),
        };
        raw.stream.write_all(b"AMQP\x00\x00\x09\x01").await.unwrap();
        raw.expect(10, 10).await;
        let login = [b"\0", user.as_bytes(), b"\0", password.as_bytes()].concat();
        let start_ok = [&[0; 4][..], &short(b"PLAIN"), &long(&login), &short(b"en_US")].concat();
        raw.method(0, 10, 11, &start_ok).await;
        let tune = raw.expect(10, 30).await;
        raw.method(0, 10, 31, &tune[..8]).await;
        raw.method(0, 10, 40, &[&short(vhost.as_bytes())[..], &[0, 0]].concat())
            .await;
        raw.expect(10, 41).await;
        raw.method(1, 20, 10, &[0]).await;
        raw.expect(20, 11).await;
        raw
    }

    /// Publishes `body` with a routing key and one header whose name and value may be any bytes.
    pub(crate) async fn publish(&mut self, exchange: &str, key: &[u8], header: &[u8], body: &[u8]) {
        let table = [&short(header)[..], b"S", &long(b"v\xff")].concat();
        self.publish_table(exchange, key, &table, body).await;
    }

    /// Publishes `body` with the fields of a header table as they stand on the wire.
    pub(crate) async fn publish_table(&mut self, exchange: &str, key: &[u8], table: &[u8], body: &[u8]) {
        let publish = [&[0, 0][..], &short(exchange.as_bytes()), &short(key), &[0]].concat();
        self.method(1, 60, 40, &publish).await;
        // Flags: headers (bit 13) and delivery mode (bit 12).
        let mut content = [0, 60, 0, 0].to_vec();
        content.extend(u64::try_from(body.len()).unwrap().to_be_bytes());
        content.extend(0x3000_u16.to_be_bytes());
        content.extend(long(table));
        content.push(2);
        self.frame(2, 1, &content).await;
        self.frame(3, 1, body).await;
        // Closing the channel in order means that the broker has taken all of it.
        self.method(1, 20, 40, &[&[0, 200][..], &short(b""), &[0; 4]].concat())
            .await;
        self.expect(20, 41).await;
        self.method(1, 20, 10, &[0]).await;
        self.expect(20, 11).await;
    }

    async fn method(&mut self, channel: u16, class: u16, method: u16, arguments: &[u8]) {
        let payload = [&class.to_be_bytes()[..], &method.to_be_bytes(), arguments].concat();
        self.frame(1, channel, &payload).await;
    }

    async fn frame(&mut self, kind: u8, channel: u16, payload: &[u8]) {
        let size = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let frame = [&[kind][..], &channel.to_be_bytes(), &size, payload, &[0xce]].concat();
        self.stream.write_all(&frame).await.unwrap();
    }

    /// Reads until the given method, whose arguments it returns.
    async fn expect(&mut self, class: u16, method: u16) -> Vec<u8> {
        loop {
            let mut head = [0; 7];
            self.stream.read_exact(&mut head).await.unwrap();
            let size = u32::from_be_bytes(head[3..7].try_into().unwrap());
            let mut payload = vec![0; size as usize + 1];
            self.stream.read_exact(&mut payload).await.unwrap();
            if head[0] == 1 {
                let got = (
                    u16::from_be_bytes([payload[0], payload[1]]),
                    u16::from_be_bytes([payload[2], payload[3]]),
                );
                assert_ne!(
                    got,
                    (10, 50),
                    "connection closed: {}",
                    String::from_utf8_lossy(&payload)
                );
                assert_ne!(
                    got,
                    (20, 40),
                    "channel closed: {}",
                    String::from_utf8_lossy(&payload)
                );
                if got == (class, method) {
                    return payload[4..payload.len() - 1].to_vec();
                }
            }
        }
    }
}

/// One header of `levels` tables within each other, or arrays, as it stands on the wire.
pub(crate) fn nested(name: &str, levels: usize, kind: u8) -> Vec<u8> {
    // Written from the inside out, and so backwards: each level says how long all within it is.
    let mut backwards: Vec<u8> = Vec::new();
    for _ in 0..levels {
        let inside = u32::try_from(backwards.len()).unwrap();
        backwards.extend(inside.to_be_bytes().iter().rev());
        backwards.push(kind);
        if kind == b'F' {
            backwards.extend([b'n', 1]);
        }
    }
    backwards.reverse();
    [&short(name.as_bytes())[..], &[kind], &long(&backwards)].concat()
}

/// Text headers that together have so many bytes on the wire.
pub(crate) fn filling(bytes: usize) -> Vec<u8> {
    let mut table = Vec::new();
    let mut n = 0;
    while table.len() < bytes {
        // Name, type and length take 10 bytes of each; the last one has what is left.
        let left = bytes - table.len();
        let size = if left < 8_000 { left } else { 4_000 } - 10;
        let header = [
            &short(format!("h{n:03}").as_bytes())[..],
            b"S",
            &long(&vec![b'x'; size]),
        ]
        .concat();
        table.extend(header);
        n += 1;
    }
    table
}

fn short(text: &[u8]) -> Vec<u8> {
    [&[u8::try_from(text.len()).unwrap()][..], text].concat()
}

fn long(text: &[u8]) -> Vec<u8> {
    [&u32::try_from(text.len()).unwrap().to_be_bytes()[..], text].concat()
}
