//! The way from this machine's loopback into a node's network, which has no other.
//!
//! A socket belongs to the network in which it was made: `up` makes one that listens on the machine's
//! loopback and gives it to this program as standard input, which is started in the node's network and
//! connects there.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::thread;

use anyhow::{Context as _, Result};

/// Carries what comes in to `to`, for ever.
///
/// # Errors
/// When standard input is no socket that listens.
pub(super) fn run(to: SocketAddr) -> Result<()> {
    let listener = TcpListener::from(io::stdin().as_fd().try_clone_to_owned()?);
    loop {
        let (outside, _) = listener.accept().context("standard input must be a socket that listens")?;
        thread::spawn(move || {
            // Who asks sees a connection that ends, and asks again.
            if let Err(error) = carry(outside, to) {
                eprintln!("{to}: {error}");
            }
        });
    }
}

/// Carries both directions until both have ended.
fn carry(outside: TcpStream, to: SocketAddr) -> io::Result<()> {
    let inside = TcpStream::connect(to)?;
    outside.set_nodelay(true)?;
    inside.set_nodelay(true)?;
    let (from_inside, to_outside) = (inside.try_clone()?, outside.try_clone()?);
    let back = thread::spawn(move || pour(from_inside, to_outside));
    pour(outside, inside);
    // It can only have ended: it does not panic.
    let _ = back.join();
    Ok(())
}

/// Carries one direction to its end, and passes the end on. A connection that breaks ends both.
fn pour(mut from: TcpStream, mut to: TcpStream) {
    let how = match io::copy(&mut from, &mut to) {
        Ok(_) => Shutdown::Write,
        Err(_) => Shutdown::Both,
    };
    // It may be gone already.
    let _ = to.shutdown(how);
    if how == Shutdown::Both {
        let _ = from.shutdown(how);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};

    #[test]
    fn both_directions_are_carried_to_their_ends() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = server.local_addr().unwrap();
        let front = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = front.local_addr().unwrap();
        let relay = thread::spawn(move || carry(front.accept().unwrap().0, to).unwrap());
        let answers = thread::spawn(move || {
            let (mut connection, _) = server.accept().unwrap();
            let mut question = String::new();
            // It ends because the client's half has ended.
            connection.read_to_string(&mut question).unwrap();
            write!(connection, "{question} indeed").unwrap();
        });
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(b"well").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "well indeed");
        relay.join().unwrap();
        answers.join().unwrap();
    }
}
