//! Serves the files of an image over HTTP: `cargo run --example serve_http IMAGE ADDRESS`. It
//! prints the address, and answers each connection in a thread of its own. Directories are lists of
//! links.

use std::error::Error;
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ferofs::read::{FileSource, FileType, Image};

/// Decodes `%20` and the like.
fn decoded(path: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = path.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = std::str::from_utf8(tail.get(..2).unwrap_or_default()).unwrap_or_default();
        match u8::from_str_radix(hex, 16) {
            Ok(byte) if *first == b'%' => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    bytes
}

fn encoded(name: &[u8]) -> String {
    name.iter().fold(String::new(), |mut text, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'_' => {
                text.push(char::from(*byte))
            }
            // Writing to a string cannot fail.
            _ => drop(write!(text, "%{byte:02x}")),
        }
        text
    })
}

fn answer(image: &Image, stream: &TcpStream) -> Result<(), Box<dyn Error>> {
    let mut lines = BufReader::new(stream).lines();
    let line = lines.next().ok_or("an empty request")??;
    // The headers. A connection that is closed with unread bytes is reset.
    for header in lines.by_ref() {
        if header?.is_empty() {
            break;
        }
    }
    let mut out = io::BufWriter::new(stream);
    let path = line.strip_prefix("GET ").and_then(|rest| rest.split([' ', '?']).next());
    let path = decoded(path.ok_or("not a request that this server knows")?);
    let path = Path::new(std::ffi::OsStr::from_bytes(&path));
    let inode = match image.metadata(path) {
        Ok(inode) => inode,
        Err(error) => {
            write!(out, "HTTP/1.0 404 Not Found\r\nContent-Type: text/plain\r\n\r\n{error}\n")?;
            return Ok(out.flush()?);
        }
    };
    match inode.file_type() {
        FileType::Regular => {
            write!(out, "HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n", inode.size())?;
            io::copy(&mut image.open_file(&inode)?, &mut out)?;
        }
        FileType::Directory => {
            write!(out, "HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\n")?;
            for entry in image.read_dir(&inode)? {
                let entry = entry?;
                let slash = if entry.file_type == Some(FileType::Directory) { "/" } else { "" };
                let name = encoded(&entry.name);
                writeln!(out, "<a href=\"{name}{slash}\">{name}{slash}</a><br>")?;
            }
        }
        _ => write!(out, "HTTP/1.0 403 Forbidden\r\n\r\nneither a file nor a directory\n")?,
    }
    Ok(out.flush()?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1);
    let image = Image::open(FileSource::open(args.next().ok_or("no image is given")?, 0)?)?;
    let address =
        args.next().map_or("127.0.0.1:0".into(), |address| address.to_string_lossy().into_owned());
    let listener = TcpListener::bind(address)?;
    println!("http://{}/", listener.local_addr()?);
    for stream in listener.incoming() {
        // A clone shares the open image.
        let (image, stream) = (image.clone(), stream?);
        std::thread::spawn(move || {
            if let Err(error) = answer(&image, &stream) {
                eprintln!("serve_http: {error}");
            }
        });
    }
    Ok(())
}
