//! Rules as text: for the program's command line, and for the control address: `POST /_control`, or
//! `GET /.control?COMMAND` with the spaces written as `+` or `%20`.
//!
//! Each line is one command:
//!
//! ```text
//! latency 20ms
//! bandwidth 25000000
//! fault status 503 path=/image times=3 after=1 method=GET header=Retry-After:1 probability=0.1
//! fault redirect 307 http://127.0.0.1:8001/image
//! fault complete | short BYTES | wrong-range BYTES | wrong-size BYTES | flipped-bit BYTE |
//! other-tag TAG fault stall-before-headers 5s | stall-in-body BYTES 5s | reset | reset-in-body
//! BYTES | garbage fault slow-bytes BYTES_A_SECOND
//! fault expiring-redirect 307 /image 2s
//! auth / Bearer SECRET
//! expires /image
//! clear | down | up | reset-counts
//! ```

use std::time::Duration;

use crate::fault::{Fault, Rule};
use crate::handle::{Auth, Handle};
use crate::object::Answer;
use crate::request::Request;

/// Executes the lines of `text`.
///
/// # Errors
/// The first line that is not a command. The lines before it have been executed.
pub fn execute(handle: &Handle, text: &str) -> Result<(), String> {
    for line in
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        command(handle, line).ok_or_else(|| format!("no command: {line}"))?;
    }
    Ok(())
}

fn command(handle: &Handle, line: &str) -> Option<()> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        ["latency", time] => handle.shape.set_latency(duration(time)?),
        ["bandwidth", bytes] => handle.shape.set_bandwidth(bytes.parse().ok()?),
        ["fault", rest @ ..] => handle.add(rule(rest)?),
        ["auth", prefix, scheme, secret] => {
            let auth = Auth::Header {
                value: format!("{scheme} {secret}"),
                challenge: (*scheme).to_owned(),
            };
            handle.set_auth(prefix, Some(auth));
        }
        ["expires", prefix] => handle.set_auth(prefix, Some(Auth::Expires)),
        ["clear"] => handle.clear(),
        ["down"] => handle.set_down(true),
        ["up"] => handle.set_down(false),
        ["reset-counts"] => handle.reset(),
        _ => return None,
    }
    Some(())
}

fn rule(words: &[&str]) -> Option<Rule> {
    let (options, words): (Vec<&str>, Vec<&str>) =
        words.iter().partition(|word| OPTIONS.iter().any(|option| word.starts_with(option)));
    let mut rule = Rule::new(fault(&words)?);
    for option in options {
        let (name, value) = option.split_once('=')?;
        rule = match name {
            "path" => rule.path(value),
            "method" => rule.method(value),
            "times" => rule.times(value.parse().ok()?),
            "after" => rule.after(value.parse().ok()?),
            "probability" => {
                rule.probability(value.parse().ok().filter(|number| (0.0..=1.0).contains(number))?)
            }
            "covering" => rule.covering(value.parse().ok()?),
            _ => value.split_once(':').map(|(name, value)| rule.header(name, value))?,
        };
    }
    Some(rule)
}

const OPTIONS: [&str; 7] =
    ["path=", "method=", "times=", "after=", "covering=", "header=", "probability="];

fn fault(words: &[&str]) -> Option<Fault> {
    Some(match words {
        ["status", status] => Fault::Status(status.parse().ok()?),
        ["redirect", status, to] => Fault::Redirect(status.parse().ok()?, (*to).to_owned()),
        ["complete"] => Fault::Complete,
        ["short", bytes] => Fault::Short(bytes.parse().ok()?),
        ["wrong-range", bytes] => Fault::WrongRange(bytes.parse().ok()?),
        ["wrong-size", bytes] => Fault::WrongSize(bytes.parse().ok()?),
        ["flipped-bit", byte] => Fault::FlippedBit(byte.parse().ok()?),
        ["other-tag", tag] => Fault::OtherTag((*tag).to_owned()),
        ["stall-before-headers", time] => Fault::StallBeforeHeaders(duration(time)?),
        ["stall-in-body", bytes, time] => Fault::StallInBody(bytes.parse().ok()?, duration(time)?),
        ["reset"] => Fault::Reset,
        ["reset-in-body", bytes] => Fault::ResetInBody(bytes.parse().ok()?),
        ["slow-bytes", bytes] => Fault::SlowBytes(bytes.parse().ok().filter(|bytes| *bytes > 0)?),
        ["expiring-redirect", status, to, time] => {
            Fault::ExpiringRedirect(status.parse().ok()?, (*to).to_owned(), duration(time)?)
        }
        ["garbage"] => Fault::Garbage,
        _ => return None,
    })
}

/// `20ms`, `5s`.
fn duration(text: &str) -> Option<Duration> {
    match text.strip_suffix("ms") {
        Some(number) => number.parse().ok().map(Duration::from_millis),
        None => text.strip_suffix('s')?.parse().ok().map(Duration::from_secs),
    }
}

/// The answer to a request for the control address.
pub(crate) fn control(request: &Request, handle: &Handle) -> Option<Answer> {
    let executed = |text: &str| match execute(handle, text) {
        Ok(()) => Answer::new(204, ""),
        Err(problem) => Answer::new(400, problem),
    };
    match (request.method.as_str(), request.path.as_str()) {
        ("POST", "/_control") => Some(executed(&String::from_utf8_lossy(&request.body))),
        ("GET", "/.control") => Some(match decoded(&request.query) {
            Some(text) => executed(&text),
            None => Answer::new(400, "the query is not encoded as an address"),
        }),
        ("GET", "/_control/counts") => {
            let counts = handle.counts();
            let json = format!(
                "{{\"connections\":{},\"requests\":{},\"bytes\":{},\"faults\":{}}}",
                counts.connections, counts.requests, counts.bytes, counts.faults
            );
            Some(Answer::new(200, json).header("Content-Type", "application/json"))
        }
        _ => None,
    }
}

/// The text of a query.
fn decoded(query: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(query.len());
    let mut rest = query.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_rules() {
        let rule = |text: &str| rule(&text.split(' ').collect::<Vec<_>>());
        let found = rule("status 503 path=/image times=3 header=Retry-After:1").unwrap();
        assert_eq!(
            (found.fault, found.path.as_str(), found.times),
            (Fault::Status(503), "/image", 3)
        );
        assert_eq!(found.headers, [("Retry-After".to_owned(), "1".to_owned())]);
        let stall = rule("stall-in-body 10 250ms").unwrap().fault;
        assert_eq!(stall, Fault::StallInBody(10, Duration::from_millis(250)));
        let redirect = rule("redirect 307 http://h/p?path=/x").unwrap().fault;
        assert_eq!(redirect, Fault::Redirect(307, "http://h/p?path=/x".into()));
        assert_eq!(rule("reset probability=0.5").unwrap().probability, 0.5);
        assert_eq!(rule("slow-bytes 1000").unwrap().fault, Fault::SlowBytes(1000));
        assert_eq!(decoded("fault+reset%20times%3D2").unwrap(), "fault reset times=2");
        assert_eq!((decoded("a%2"), decoded("%ff")), (None, None));
        for wrong in [
            "reset probability=2",
            "slow-bytes 0",
            "status",
            "status x",
            "short",
            "",
            "reset times=x",
            "stall-in-body 1 2h",
        ] {
            assert!(rule(wrong).is_none(), "{wrong}");
        }
        let handle = Handle::default();
        assert_eq!(
            execute(&handle, "# comment\nlatency 1ms\n\nfast"),
            Err("no command: fast".into())
        );
    }
}
