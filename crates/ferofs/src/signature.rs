//! Signatures of digests, as the kernel and systemd take them for root hashes: PKCS #7, detached,
//! in DER. What is signed is the text of the digest: its hexadecimal digits, without a line break.
//! openssl does all cryptography.

#[cfg(test)]
mod tests;

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::NamedTempFile;

use crate::error::{Error, IoError, Result, SignatureProblem};

/// Bytes of the largest certificate file or signature: those of a few certificates are some KiB.
const INPUT_MAX: u64 = 1 << 20;
/// Bits that the keys of these algorithms must have, as openssl names them: 112 bits of security by
/// NIST SP 800-57, table 2. openssl's own level 2 lets RSA keys from 1920 bits on pass.
const KEY_BITS: [(&str, u32); 3] =
    [("rsaEncryption", 2048), ("rsassaPss", 2048), ("id-ecPublicKey", 224)];

/// The level of openssl that a signature must have: 112 bits of security, for example RSA with 2048
/// bits and SHA-224.
const SECURITY_LEVEL: &str = "2";
/// Digests for which collisions are known, or whose length is below the security level, as openssl
/// names them.
const WEAK_DIGESTS: [&str; 6] = ["md2", "md4", "md5", "mdc2", "sha1", "ripemd160"];

/// A signature of `text` by the private key in the file `key`, whose certificate is in the file
/// `cert`, both in PEM. A key with a password asks for it on the terminal.
///
/// # Errors
/// [`Error::Signature`]: the key or the certificate is none, weak, not valid now, or they do not belong to each other; [`Error::Io`].
pub fn sign(text: &str, key: &Path, cert: &Path) -> Result<Vec<u8>> {
    check_certificate(cert)?;
    let file = temporary(text)?;
    let mut sign = Command::new("openssl");
    sign.args([
        "smime", "-sign", "-nocerts", "-noattr", "-binary", "-md", "sha256", "-outform", "DER",
        "-in",
    ]);
    sign.arg(file.path()).arg("-inkey").arg(key).arg("-signer").arg(cert);
    sign.stdin(Stdio::inherit());
    let signature = openssl(&mut sign).map_err(|problem| about_key(key, cert, problem))?;
    let mut made = NamedTempFile::new().map_err(temporary_failed)?;
    made.write_all(&signature).map_err(temporary_failed)?;
    // A signature that no key accepts is not given.
    verify(text, made.path(), &[cert.to_owned()]).map_err(|error| match error {
        Error::Signature { problem, .. } => Error::signature(cert, problem),
        error => error,
    })?;
    Ok(signature)
}

/// Why openssl could not sign, although the certificate is right.
fn about_key(key: &Path, cert: &Path, problem: SignatureProblem) -> Error {
    // It may be a pipe, which is read once.
    if read_input(key).is_ok_and(|key| !contains(&key, b"PRIVATE KEY-----")) {
        return Error::signature(key, SignatureProblem::Not("no private key in PEM"));
    }
    let problem = match problem {
        SignatureProblem::OpenSsl(text)
            if text.contains("does not match") || text.contains("mismatch") =>
        {
            SignatureProblem::OtherKey(cert.to_owned())
        }
        // PKCS #7 has no identifiers for them.
        SignatureProblem::OpenSsl(text) if text.contains("add signature") => SignatureProblem::Not(
            "a key of a kind that PKCS #7 does not have, as Ed25519 and RSA-PSS: RSA and ECDSA keys sign",
        ),
        problem => problem,
    };
    Error::signature(key, problem)
}

/// Fails if the file `signature` has no signature of `text` by one of the certificates, which are
/// in PEM and must be valid now.
///
/// # Errors
/// [`Error::Signature`], which names the file at fault; [`Error::Io`].
pub fn check(text: &str, signature: &Path, certs: &[PathBuf]) -> Result<()> {
    certs.iter().try_for_each(|cert| check_certificate(cert))?;
    let bytes = read_input(signature)?;
    if let Some(problem) = envelope_problem(&bytes) {
        return Err(Error::signature(signature, SignatureProblem::Not(problem)));
    }
    verify(text, signature, certs)
}

/// The bytes of a certificate or signature.
fn read_input(path: &Path) -> Result<Vec<u8>> {
    let read = |error| Error::io("read", path, error);
    // Opening a FIFO would wait for a writer.
    if !std::fs::metadata(path).map_err(read)?.is_file() {
        return Err(Error::signature(path, SignatureProblem::Not("not a regular file")));
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .map_err(read)?
        .take(INPUT_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(read)?;
    if bytes.len() as u64 > INPUT_MAX {
        let problem = "larger than a certificate or signature can be (1 MiB)";
        return Err(Error::signature(path, SignatureProblem::Not(problem)));
    }
    Ok(bytes)
}

fn contains(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|window| window == text)
}

/// Fails if there is no certificate in the file, or one with a weak key.
fn check_certificate(path: &Path) -> Result<()> {
    let bytes = read_input(path)?;
    if !contains(&bytes, b"-----BEGIN CERTIFICATE-----")
        && !contains(&bytes, b"-----BEGIN TRUSTED CERTIFICATE-----")
    {
        let is_der = der_len(&bytes).is_some();
        let problem =
            if is_der { "in DER: a certificate must be in PEM" } else { "no certificate in PEM" };
        return Err(Error::signature(path, SignatureProblem::Not(problem)));
    }
    let mut show = Command::new("openssl");
    show.args(["storeutl", "-noout", "-text", "-certs"]).arg(path);
    let shown = openssl(&mut show).map_err(|problem| {
        let problem = match problem {
            SignatureProblem::OpenSsl(text) => SignatureProblem::BadCertificate(text),
            problem => problem,
        };
        Error::signature(path, problem)
    })?;
    match weak_key(&String::from_utf8_lossy(&shown)) {
        Some((name, bits, needed)) => Err(Error::signature(
            path,
            SignatureProblem::WeakKey { name: name.to_owned(), bits, needed },
        )),
        None => Ok(()),
    }
}

/// The algorithm and bits of the first weak key in openssl's description of certificates, and the
/// bits that it needs.
fn weak_key(shown: &str) -> Option<(&str, u32, u32)> {
    let mut algorithm = "";
    shown.lines().map(str::trim).find_map(|line| {
        if let Some(name) = line.strip_prefix("Public Key Algorithm: ") {
            algorithm = name;
        }
        let bits = line.split_once("Public-Key: (")?.1.split(' ').next()?.parse::<u32>().ok()?;
        let (name, needed) = KEY_BITS.into_iter().find(|(name, _)| *name == algorithm)?;
        (bits < needed).then_some((name, bits, needed))
    })
}

/// Why `signature` is not the one structure in DER that a signature is. Linux refuses more bytes,
/// too.
fn envelope_problem(signature: &[u8]) -> Option<&'static str> {
    if signature.starts_with(b"-----BEGIN") {
        return Some("in PEM: a signature must be in DER");
    }
    match der_len(signature) {
        None => Some("no signature in DER"),
        Some(len) if len > signature.len() => Some("the signature is not complete"),
        Some(len) if len < signature.len() => Some("other bytes follow the signature"),
        Some(_) => None,
    }
}

/// Bytes of the SEQUENCE that starts `bytes`, if it does, with a length in the form that DER
/// allows. Source: X.690, sections 8.1.3 and 10.1.
fn der_len(bytes: &[u8]) -> Option<usize> {
    let (&[0x30, first], rest) = bytes.split_first_chunk::<2>()? else { return None };
    let digits = match first {
        0..=0x7f => return Some(2 + usize::from(first)),
        0x80 => return None,
        // The content has at most 4 GiB.
        0x81..=0x84 => rest.get(..usize::from(first - 0x80))?,
        _ => return None,
    };
    let len = digits.iter().fold(0_usize, |len, digit| len << 8 | usize::from(*digit));
    // The shortest form: no zero first, and one byte only for what needs it.
    (digits[0] != 0 && len >= 0x80).then_some(2 + digits.len() + len)
}

/// A file with `text`, for openssl.
fn temporary(text: &str) -> Result<NamedTempFile> {
    let mut file = NamedTempFile::new().map_err(temporary_failed)?;
    file.write_all(text.as_bytes()).map_err(temporary_failed)?;
    Ok(file)
}

fn temporary_failed(error: io::Error) -> Error {
    IoError::unnamed("write a temporary file", error).into()
}

/// Checks a signature, and the certificates.
fn verify(text: &str, signature: &Path, certs: &[PathBuf]) -> Result<()> {
    let text = temporary(text)?;
    let mut trusted = NamedTempFile::new().map_err(temporary_failed)?;
    for cert in certs {
        let pem = read_input(cert)?;
        trusted
            .write_all(&pem)
            .and_then(|()| trusted.write_all(b"\n"))
            .map_err(temporary_failed)?;
    }
    let about = |problem| Error::signature(signature, problem);
    let mut show = Command::new("openssl");
    show.args(["cms", "-cmsout", "-print", "-noout", "-inform", "DER", "-in"]).arg(signature);
    let shown = openssl(&mut show).map_err(about)?;
    let shown = String::from_utf8_lossy(&shown);
    if !is_detached(&shown) {
        let problem = "the signature has a content of its own: it must be detached";
        return Err(about(SignatureProblem::Not(problem)));
    }
    if let Some(digest) = weak_digest(&shown) {
        return Err(about(SignatureProblem::WeakDigest(digest.to_owned())));
    }
    let mut verify = Command::new("openssl");
    verify.args([
        "smime",
        "-verify",
        "-binary",
        "-inform",
        "DER",
        "-purpose",
        "any",
        "-partial_chain",
        "-nointern",
    ]);
    verify.args(["-auth_level", SECURITY_LEVEL, "-out", "/dev/null", "-in"]).arg(signature);
    verify.arg("-content").arg(text.path());
    verify
        .arg("-certfile")
        .arg(trusted.path())
        .arg("-CAfile")
        .arg(trusted.path())
        .args(["-no-CApath", "-no-CAstore"]);
    openssl(&mut verify).map(drop).map_err(|problem| {
        about(match problem {
            SignatureProblem::OpenSsl(text) if text.contains("signer certificate not found") => {
                SignatureProblem::Not(
                    "it is by the key of another certificate than those of --cert",
                )
            }
            problem => problem,
        })
    })
}

/// Whether openssl's description of a signature tells of no content.
fn is_detached(shown: &str) -> bool {
    let mut contents =
        shown.lines().filter_map(|line| line.trim().strip_prefix("eContent:")).peekable();
    contents.peek().is_some() && contents.all(|content| content.trim() == "<ABSENT>")
}

/// The first weak digest in openssl's description of a signature.
fn weak_digest(shown: &str) -> Option<&str> {
    let names = shown.lines().filter_map(|line| line.trim().strip_prefix("algorithm: "));
    let names = names.filter_map(|text| text.split([' ', '(']).next());
    names.into_iter().find(|name| {
        let name = name.to_ascii_lowercase();
        WEAK_DIGESTS
            .iter()
            .any(|weak| name.starts_with(weak) || name.ends_with(&format!("-{weak}")))
    })
}

/// Runs openssl, and returns its output.
fn openssl(command: &mut Command) -> Result<Vec<u8>, SignatureProblem> {
    let Output { status, stdout, stderr } =
        command.output().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => SignatureProblem::NoOpenSsl,
            _ => SignatureProblem::OpenSsl(error.to_string()),
        })?;
    if status.success() {
        return Ok(stdout);
    }
    Err(SignatureProblem::OpenSsl(reason(&String::from_utf8_lossy(&stderr))))
}

/// The reason in openssl's messages, which have the form
/// `number:error:code:library:function:reason:file:line:detail`.
fn reason(text: &str) -> String {
    let line = text.lines().rfind(|line| line.contains(":error:"));
    let reason = line.map(|line| {
        let mut fields = line.splitn(9, ':');
        let reason = fields.nth(5).unwrap_or(line);
        let detail = fields.nth(2).unwrap_or_default();
        let detail = detail.trim_start_matches("Verify error: ").trim();
        if detail.is_empty() { reason.to_owned() } else { format!("{reason}: {detail}") }
    });
    let reason = reason.or_else(|| text.lines().next_back().map(ToOwned::to_owned));
    format!("openssl: {}", reason.unwrap_or_else(|| "failed without a message".to_owned()))
}
