//! Signatures of digests, as the kernel and systemd take them for root hashes: PKCS #7, detached, in DER. What is signed is the text of the
//! digest: its hexadecimal digits, without a line break. openssl does all cryptography.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use ferofs::build::NewFile;
use tempfile::NamedTempFile;

use crate::args::image::refuse_as_output;
use crate::exit::Failure;

/// The level of openssl that a signature must have: 112 bits of security, for example RSA with 2048 bits and SHA-224.
const SECURITY_LEVEL: &str = "2";
/// Digests for which collisions are known, or whose length is below the security level, as openssl names them.
const WEAK_DIGESTS: [&str; 6] = ["md2", "md4", "md5", "mdc2", "sha1", "ripemd160"];

/// The key that signs.
#[derive(clap::Args)]
pub(crate) struct SignArgs {
    /// The private key, in PEM
    #[arg(long, value_name = "FILE")]
    key: PathBuf,

    /// The certificate of the key, in PEM
    #[arg(long, value_name = "FILE")]
    cert: PathBuf,

    /// Write the signature to this file
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

impl SignArgs {
    /// Writes a signature of `text`. The output may not be one of `inputs`.
    pub(crate) fn sign(&self, text: &str, inputs: &[&Path]) -> Result<(), Failure> {
        refuse_as_output(&self.output, &[inputs, &[&self.key, &self.cert]].concat())?;
        let file = temporary(text)?;
        let mut sign = Command::new("openssl");
        sign.args([
            "smime", "-sign", "-nocerts", "-noattr", "-binary", "-md", "sha256", "-outform", "DER", "-in",
        ]);
        sign.arg(file.path()).arg("-inkey").arg(&self.key).arg("-signer").arg(&self.cert);
        // A password is asked for on the terminal.
        sign.stdin(Stdio::inherit());
        let signature = openssl(&mut sign).map_err(|e| Failure::about(&self.key, e))?;
        let mut made = NamedTempFile::new()?;
        made.write_all(&signature)?;
        // What nobody would accept is not written.
        verify(text, made.path(), std::slice::from_ref(&self.cert))
            .map_err(|e| Failure::about(&self.cert, e))?;
        let mut output = NewFile::create(&self.output).map_err(Failure::without_subject)?;
        output.write_all(&signature).map_err(|e| Failure::about(&self.output, e))?;
        output.finish().map_err(Failure::without_subject)
    }
}

/// Fails if `signature` is no signature of `text` by one of the certificates.
pub(crate) fn check(text: &str, signature: &Path, certs: &[PathBuf]) -> Result<(), Failure> {
    // openssl reports a missing file in many lines.
    for path in certs.iter().map(PathBuf::as_path).chain([signature]) {
        std::fs::File::open(path).map_err(|e| Failure::about(path, e))?;
    }
    verify(text, signature, certs).map_err(|e| Failure::about(signature, e))
}

/// A file with `text`, for openssl.
fn temporary(text: &str) -> io::Result<NamedTempFile> {
    let mut file = NamedTempFile::new()?;
    file.write_all(text.as_bytes())?;
    Ok(file)
}

/// Checks a signature, and the certificates.
fn verify(text: &str, signature: &Path, certs: &[PathBuf]) -> io::Result<()> {
    let text = temporary(text)?;
    let mut trusted = NamedTempFile::new()?;
    for cert in certs {
        trusted.write_all(&std::fs::read(cert)?)?;
        trusted.write_all(b"\n")?;
    }
    let mut show = Command::new("openssl");
    show.args(["cms", "-cmsout", "-print", "-noout", "-inform", "DER", "-in"]).arg(signature);
    let shown = openssl(&mut show)?;
    if let Some(digest) = weak_digest(&String::from_utf8_lossy(&shown)) {
        return Err(io::Error::other(format!("the digest {digest} is too weak")));
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
    openssl(&mut verify).map(drop)
}

/// The first weak digest in openssl's description of a signature.
fn weak_digest(shown: &str) -> Option<&str> {
    let names = shown.lines().filter_map(|line| line.trim().strip_prefix("algorithm: "));
    let names = names.filter_map(|text| text.split([' ', '(']).next());
    names.into_iter().find(|name| {
        let name = name.to_ascii_lowercase();
        WEAK_DIGESTS.iter().any(|weak| name.starts_with(weak) || name.ends_with(&format!("-{weak}")))
    })
}

/// Runs openssl, and returns its output.
fn openssl(command: &mut Command) -> io::Result<Vec<u8>> {
    let Output { status, stdout, stderr } = command.output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => io::Error::other("signatures need openssl, which is not installed"),
        _ => error,
    })?;
    if status.success() {
        return Ok(stdout);
    }
    Err(io::Error::other(reason(&String::from_utf8_lossy(&stderr))))
}

/// The reason in openssl's messages, which have the form `number:error:code:library:function:reason:file:line:detail`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weak_digests_are_found_in_descriptions() {
        let shown = |name: &str| {
            format!(
                "  d.signedData: \n    digestAlgorithms:\n        algorithm: {name} (1.2.3)\n        parameter: NULL\n"
            )
        };
        for weak in ["sha1", "md5", "sha1WithRSAEncryption", "ecdsa-with-SHA1", "ripemd160"] {
            assert!(weak_digest(&shown(weak)).is_some(), "{weak}");
        }
        for good in ["sha256", "sha512", "sha3-256", "rsaEncryption", "ecdsa-with-SHA256", "ED25519"] {
            assert_eq!(weak_digest(&shown(good)), None, "{good}");
        }
    }

    #[test]
    fn one_line_gives_the_reason() {
        let text = "Verification failure\n00A1:error:10800075:PKCS7 routines:PKCS7_verify:certificate verify error:../crypto/pkcs7/pk7_smime.c:296:Verify error: certificate has expired\n";
        assert_eq!(reason(text), "openssl: certificate verify error: certificate has expired");
        assert_eq!(reason("Could not open file\n"), "openssl: Could not open file");
        assert_eq!(reason(""), "openssl: failed without a message");
    }
}
