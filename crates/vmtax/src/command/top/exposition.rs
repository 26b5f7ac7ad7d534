//! OpenMetrics text in a file, or for requests to a port of the loopback address.

use crate::cli::Exposition;
use crate::fault::Fault;
use crate::messages::note;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;
use std::time::Duration;

/// A request's head is no longer, bytes.
const MAX_REQUEST: usize = 8192;
/// Longest time that a client may take.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);

/// Where the text is published.
pub(super) enum Published {
    File(PathBuf),
    Port(Arc<Mutex<String>>),
}

impl Published {
    pub fn open(at: &Exposition) -> Result<Published, Fault> {
        let port = match at {
            Exposition::File(path) => return Ok(Published::File(path.clone())),
            Exposition::Port(port) => *port,
        };
        let failed = |e| {
            Fault::file(
                format!("listening on port {port} of 127.0.0.1: choose another"),
                e,
            )
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(failed)?;
        let text = Arc::new(Mutex::new(String::new()));
        let served = text.clone();
        // One client at a time: a scrape takes milliseconds, and a silent client its timeout.
        let serve = move || {
            for client in listener.incoming().flatten() {
                let _ = answer(client, &served);
            }
        };
        Builder::new()
            .spawn(serve)
            .map_err(|e| Fault::file("starting a thread", e))?;
        note(&format!("serving http://127.0.0.1:{port}/metrics"));
        Ok(Published::Port(text))
    }

    /// Publishes another text.
    pub fn replace(&mut self, text: &str) -> Result<(), Fault> {
        match self {
            Published::Port(published) => {
                text.clone_into(&mut published.lock().unwrap_or_else(PoisonError::into_inner));
                Ok(())
            }
            // A reader sees the old file or the new one.
            Published::File(path) => {
                let mut new = path.clone().into_os_string();
                new.push(".new");
                let written = fs::write(&new, text).and_then(|()| fs::rename(&new, &*path));
                written.map_err(|e| {
                    Fault::file(format!("writing {}: name another file", path.display()), e)
                })
            }
        }
    }
}

/// Answers one request: `GET /metrics`.
fn answer(mut client: TcpStream, text: &Mutex<String>) -> std::io::Result<()> {
    client.set_read_timeout(Some(CLIENT_TIMEOUT))?;
    client.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    let mut head = Vec::new();
    let mut part = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < MAX_REQUEST {
        match client.read(&mut part)? {
            0 => break,
            n => head.extend_from_slice(&part[..n]),
        }
    }
    let is_metrics = head.starts_with(b"GET /metrics ") || head.starts_with(b"GET /metrics?");
    let (status, body) = match is_metrics {
        true => (
            "200 OK",
            text.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        ),
        false => ("404 Not Found", "GET /metrics\n".to_owned()),
    };
    let kind = if is_metrics {
        "application/openmetrics-text; version=1.0.0; charset=utf-8"
    } else {
        "text/plain"
    };
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    client.write_all(answer.as_bytes())
}
