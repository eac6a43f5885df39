//! Clients that send only the heads of requests, by HTTP/2 (RFC 9113) and HTTP/1.1.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::fixture::{Client, NAME};

/// The first bytes of a connection of HTTP/2.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
/// Settings of a server.
const STREAMS_MAX: u16 = 3;
const HEADER_BYTES_MAX: u16 = 6;
/// For the longest timeout of a webhook.
const PATH: &str = "/validate?timeout=30s";
/// What a field counts besides its name and value (RFC 9113, section 6.5.2).
const FIELD: usize = 32;

pub(crate) struct Heads {
    stream: TlsStream<TcpStream>,
    next: u32,
    /// The server's limits of requests at the same time, and of header bytes.
    pub(crate) streams_max: u32,
    pub(crate) header_bytes_max: u32,
}

impl Heads {
    pub(crate) async fn connect(client: Client, address: SocketAddr) -> Self {
        let mut stream = client.http2().handshake(address).await.unwrap();
        stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()).await.unwrap();
        let (kind, _, settings) = read(&mut stream).await;
        assert_eq!(kind, SETTINGS);
        let told = |wanted: u16| {
            let mut told = settings.chunks_exact(6).filter(|told| told[..2] == wanted.to_be_bytes());
            told.next().map(|told| u32::from_be_bytes(told[2..].try_into().unwrap())).unwrap()
        };
        let (streams_max, header_bytes_max) = (told(STREAMS_MAX), told(HEADER_BYTES_MAX));
        stream.write_all(&frame(SETTINGS, ACK, 0, &[])).await.unwrap();
        Self { stream, next: 1, streams_max, header_bytes_max }
    }

    /// Sends this many heads, each counting this many header bytes, and waits until the server has read them.
    /// A field costs one byte to send: the first defines it, and all others refer to it (RFC 7541).
    pub(crate) async fn send(&mut self, heads: u32, header_bytes: u32) {
        let mut bytes = Vec::new();
        for _ in 0..heads {
            bytes.extend(frame(HEADERS, END_HEADERS, self.next, &head(self.next == 1, header_bytes)));
            self.next += 2;
        }
        bytes.extend(frame(PING, 0, 0, &[0; 8]));
        self.stream.write_all(&bytes).await.unwrap();
        while !matches!(read(&mut self.stream).await, (PING, ACK, _)) {}
    }
}

/// A connection of HTTP/1.1 with the head of a request whose body does not come.
pub(crate) async fn head_of_http1(client: Client, address: SocketAddr) -> TlsStream<TcpStream> {
    let mut stream = client.handshake(address).await.unwrap();
    let head = format!("POST {PATH} HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 100\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

/// The headers of a request: method, scheme, path, host, and one field as often as it fits.
fn head(is_first: bool, header_bytes: u32) -> Vec<u8> {
    let mut block = vec![0x83, 0x87];
    for (name, value) in [(4, PATH), (1, NAME)] {
        block.extend([name, u8::try_from(value.len()).unwrap()]);
        block.extend(value.bytes());
    }
    let mut counted =
        [":methodPOST", ":schemehttps", ":path", PATH, ":authority", NAME].concat().len() + 4 * FIELD;
    // An empty field with a name of one letter. The first goes into the table, where it is the newest entry.
    let mut field: &[u8] = if is_first { &[0x40, 1, b'a', 0] } else { &[0xbe] };
    while counted + FIELD < usize::try_from(header_bytes).unwrap() {
        block.extend(field);
        field = &[0xbe];
        counted += FIELD + 1;
    }
    block
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Kind, flags and payload of the next frame.
async fn read(stream: &mut TlsStream<TcpStream>) -> (u8, u8, Vec<u8>) {
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.unwrap();
    let mut payload = vec![0; usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2])];
    stream.read_exact(&mut payload).await.unwrap();
    (head[3], head[4], payload)
}
