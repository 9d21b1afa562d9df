//! Signatures of root hashes: openssl makes and checks the same, and what nobody should trust is
//! refused.

use std::fs;
use std::path::PathBuf;

use ferofs_tests::{Run, ferofs, need};

use super::make_fifo;
use crate::common::fixture::Fixture;

/// A key and its certificates, in PEM.
struct Keys {
    openssl: PathBuf,
    fixture: Fixture,
}

impl Keys {
    fn path(&self, name: &str) -> String {
        self.fixture.path(name).display().to_string()
    }

    fn openssl(&self, arguments: &[&str]) {
        Run::new(&self.openssl).args(arguments).success();
    }

    /// Makes `NAME.key` and the certificate `NAME.pem`, which is valid for these days from now.
    fn make(&self, name: &str, algorithm: &str, days: &str) {
        let (key, cert, request) = (
            self.path(&format!("{name}.key")),
            self.path(&format!("{name}.pem")),
            self.path("request"),
        );
        let subject = format!("/CN={name}");
        let mut new =
            vec!["req", "-new", "-nodes", "-newkey", algorithm, "-keyout", &key, "-out", &request];
        if algorithm == "ec" {
            new.extend(["-pkeyopt", "ec_paramgen_curve:prime256v1"]);
        }
        new.extend(["-subj", &subject]);
        self.openssl(&new);
        self.openssl(&[
            "x509", "-req", "-in", &request, "-signkey", &key, "-days", days, "-out", &cert,
        ]);
    }
}

/// A patch is applied only with a right signature, if one is asked for.
fn patches_are_checked(keys: &Keys) {
    let (fixture, image) = Fixture::small_image();
    fixture.write("added", "content ".repeat(10_000));
    let (patch, other) = (fixture.path("patch"), fixture.path("other"));
    for output in [&patch, &other] {
        let create = ferofs!("patch create", &image, fixture.source());
        create.arg("-o").arg(output).success();
        fixture.write("added", "another content ".repeat(10_000));
    }
    let signature = keys.path("patch.p7s");
    let sign = ferofs!("patch sign", &patch, "--output", &signature);
    sign.args(["--key", &keys.path("good.key"), "--cert", &keys.path("good.pem")]).success();
    let before = fs::read(&image).unwrap();
    let apply = |patch: &PathBuf, cert: &str| {
        let apply = ferofs!("patch apply --signature", &signature, "--cert", keys.path(cert));
        apply.args([&image, patch]).run()
    };
    apply(&other, "good.pem").failure(1);
    apply(&patch, "other.pem").failure(1);
    assert!(fs::read(&image).unwrap() == before, "a refused patch changed the image");
    apply(&patch, "almost.pem").failure(1).says("too weak");
    if let Some(device) = need::device_program() {
        let good = keys.path("good.pem");
        let apply = Run::new(&device).args(["apply", "--signature", &signature, "--cert", &good]);
        assert_eq!(apply.args([&image, &other]).run().code, 1);
    }
    assert!(fs::read(&image).unwrap() == before, "a refused patch changed the image");
    apply(&patch, "good.pem").success();
}

/// A delta is applied only with a right signature, if one is asked for: by the command and by the
/// program for devices, from a file and a pipe.
fn deltas_are_checked(keys: &Keys) {
    let (fixture, old) = Fixture::small_image();
    let [first, second, delta, other, mixed, out] =
        ["first", "second", "delta", "other", "mixed", "out"].map(|name| fixture.path(name));
    for (new, delta, text) in [(&first, &delta, "content "), (&second, &other, "another content ")]
    {
        fixture.write("added", text.repeat(10_000));
        ferofs!("build", fixture.source(), new).success();
        ferofs!("delta create --output", delta, &old, new).success();
    }
    let signature = keys.path("delta.p7s");
    let sign = ferofs!("delta sign", &delta, "--output", &signature);
    sign.args(["--key", &keys.path("good.key"), "--cert", &keys.path("good.pem")]).success();
    // The head that is signed, with the pieces of another delta.
    let [signed, foreign] = [&delta, &other].map(|path| fs::read(path).unwrap());
    let head = |bytes: &[u8]| 32 + u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
    fs::write(&mixed, [&signed[..head(&signed)], &foreign[head(&foreign)..]].concat()).unwrap();
    let device = need::device_program();
    for device in [None].into_iter().chain(device.map(Some)) {
        let apply = |delta: &PathBuf, options: &[&str]| {
            let of_device = device.as_ref().map(|device| Run::new(device).arg("delta"));
            let program = of_device.unwrap_or_else(|| ferofs!("delta apply"));
            let apply = program.arg(&old).arg("-").arg(&out).args(options);
            apply.input(fs::File::open(delta).unwrap()).run()
        };
        let with = |delta: &PathBuf, signature: &str, cert: &str| {
            apply(delta, &["--signature", signature, "--cert", &keys.path(cert)])
        };
        let missing = keys.path("missing.p7s");
        for (delta, signature, cert, reason) in [
            (&other, &signature, "good.pem", "signature failure"),
            (&delta, &signature, "other.pem", "delta.p7s: it is by the key of another certificate"),
            (&delta, &missing, "good.pem", "missing.p7s: "),
            (&delta, &signature, "almost.pem", "too weak"),
        ] {
            let refused = with(delta, signature, cert);
            refused.fails(1, reason);
        }
        assert_eq!(apply(&delta, &["--cert", &keys.path("good.pem")]).code, 2);
        assert!(!out.exists(), "a refused delta made a file");
        assert_eq!(with(&mixed, &signature, "good.pem").code, 1);
        assert!(
            !out.exists() || fs::read(&out).unwrap().is_empty(),
            "bytes that nobody signed were written"
        );
        with(&delta, &signature, "good.pem").success();
        assert!(fs::read(&out).unwrap() == fs::read(&first).unwrap());
        fs::remove_file(&out).unwrap();
    }
    let options = ["delta", "apply", "--signature", &signature, "--cert", &keys.path("good.pem")];
    let without_openssl =
        ferofs().env("PATH", "/nowhere").args(options).args([&old, &delta, &out]).run();
    without_openssl.failure(1).says("openssl, which is not installed");
    assert!(!out.exists());
}

/// A signature is one structure in DER, without content; and each refusal names the file at fault.
fn envelopes_are_checked(keys: &Keys, root: &str, text: &str) {
    let refused = |signature: &str, cert: &str, reason: &str| {
        let verify = ferofs!("verity verify-signature", root, signature, "--cert", cert);
        let stderr = verify.failure(1).stderr;
        assert!(stderr.contains(reason), "{reason}: {stderr}");
    };
    let (cert, attached, right) =
        (keys.path("good.pem"), keys.path("attached.p7s"), keys.path("good.p7s"));
    keys.openssl(&[
        "smime",
        "-sign",
        "-nodetach",
        "-nocerts",
        "-noattr",
        "-binary",
        "-md",
        "sha256",
        "-in",
        text,
        "-inkey",
        &keys.path("good.key"),
        "-signer",
        &cert,
        "-outform",
        "DER",
        "-out",
        &attached,
    ]);
    refused(&attached, &cert, "attached.p7s: the signature has a content of its own");
    let der = fs::read(&right).unwrap();
    let wrong = keys.path("wrong.p7s");
    for (bytes, reason) in [
        ([&der[..], b"\n"].concat(), "wrong.p7s: other bytes follow the signature"),
        (der[..der.len() - 1].to_vec(), "wrong.p7s: the signature is not complete"),
        (b"-----BEGIN PKCS7-----".to_vec(), "wrong.p7s: in PEM: a signature must be in DER"),
        (Vec::new(), "wrong.p7s: no signature in DER"),
    ] {
        fs::write(&wrong, bytes).unwrap();
        refused(&wrong, &cert, reason);
    }
    let (der_cert, no_cert, fifo) = (keys.path("der.crt"), keys.path("no.pem"), keys.path("fifo"));
    keys.openssl(&["x509", "-in", &cert, "-outform", "DER", "-out", &der_cert]);
    refused(&right, &der_cert, "der.crt: in DER: a certificate must be in PEM");
    fs::write(&no_cert, "no certificate").unwrap();
    refused(&right, &no_cert, "no.pem: no certificate in PEM");
    let broken = fs::read_to_string(&cert).unwrap().replacen("MII", "MIJ", 1);
    fs::write(&no_cert, broken).unwrap();
    refused(&right, &no_cert, "no.pem: no sound certificate: openssl: ");
    make_fifo(std::path::Path::new(&fifo));
    refused(&right, &fifo, "fifo: not a regular file");
    refused(&fifo, &cert, "fifo: not a regular file");
    let (output, other) = (keys.path("refused.p7s"), keys.path("other.key"));
    for (key, cert, reason) in [
        (&other, &cert, "not the key of the certificate"),
        (&cert, &cert, "good.pem: no private key in PEM"),
        (&other, &der_cert, "der.crt: in DER"),
        (&keys.path("edwards.key"), &keys.path("edwards.pem"), "RSA and ECDSA keys sign"),
    ] {
        let sign = ferofs!("verity sign", root, "--key", key, "--cert", cert, "--output", &output);
        let stderr = sign.failure(1).stderr;
        assert!(stderr.contains(reason), "{reason}: {stderr}");
    }
}

#[test]
fn signatures_are_those_of_openssl() {
    let Some(openssl) = need::tool("openssl") else { return };
    let keys = Keys { openssl, fixture: Fixture::empty() };
    for (name, algorithm, days) in [
        ("good", "rsa:2048", "10"),
        ("curve", "ec", "10"),
        ("edwards", "ed25519", "10"),
        ("other", "rsa:2048", "10"),
        ("weak", "rsa:1024", "10"),
        // openssl's level 2 accepts it.
        ("almost", "rsa:2040", "10"),
        // It expires in the second in which it is made.
        ("expired", "rsa:2048", "0"),
    ] {
        keys.make(name, algorithm, days);
    }
    let (root, wrong) = ("ab".repeat(32), "ba".repeat(32));
    let sign = |name: &str, output: &str| {
        ferofs!(
            "verity sign",
            &root,
            "--key",
            keys.path(&format!("{name}.key")),
            "--cert",
            keys.path(&format!("{name}.pem")),
            "--output",
            output
        )
        .run()
    };
    let verify = |root: &str, signature: &str, certs: &[&str]| {
        let certs =
            certs.iter().flat_map(|name| ["--cert".to_owned(), keys.path(&format!("{name}.pem"))]);
        ferofs!("verity verify-signature", root, signature).args(certs).run()
    };
    let text = keys.path("text");
    fs::write(&text, &root).unwrap();
    for name in ["good", "curve"] {
        let (ours, cert) = (keys.path(&format!("{name}.p7s")), keys.path(&format!("{name}.pem")));
        sign(name, &ours).success();
        verify(&root, &ours, &[name]).success();
        verify(&root, &ours, &["other", name]).success();
        verify(&wrong, &ours, &[name]).failure(1).says("signature failure");
        verify(&root, &ours, &["other"]).failure(1);
        // As the kernel: the text without a line break, and no signed attributes.
        keys.openssl(&[
            "smime",
            "-verify",
            "-binary",
            "-inform",
            "DER",
            "-in",
            &ours,
            "-content",
            &text,
            "-certfile",
            &cert,
            "-nointern",
            "-noverify",
        ]);
    }
    let [key, cert, by_file, other] =
        ["good.key", "good.pem", "by_file.p7s", "other.text"].map(|name| keys.path(name));
    fs::write(&other, &wrong).unwrap();
    let with_file = |command: &str, file: &str| {
        ferofs!("verity", command, "--roothash-file", file, "--cert", &cert)
    };
    with_file("sign", &text).args(["--key", &key, "--output", &by_file]).success();
    verify(&root, &by_file, &["good"]).success();
    with_file("verify-signature", &text).arg(&by_file).success();
    with_file("verify-signature", &other).arg(&by_file).failure(1);
    for (name, reason) in [("weak", "too weak"), ("almost", "2040 bits"), ("expired", "expired")] {
        let output = keys.path("refused.p7s");
        sign(name, &output).failure(1).says(reason);
        assert!(!PathBuf::from(&output).exists(), "{name}: a signature was written");
    }
    let by_openssl = |name: &str, digest: &str| {
        let output = keys.path("theirs.p7s");
        let (key, cert) = (keys.path(&format!("{name}.key")), keys.path(&format!("{name}.pem")));
        keys.openssl(&[
            "smime", "-sign", "-nocerts", "-noattr", "-binary", "-md", digest, "-in", &text,
            "-inkey", &key, "-signer", &cert, "-outform", "DER", "-out", &output,
        ]);
        output
    };
    verify(&root, &by_openssl("good", "sha512"), &["good"]).success();
    verify(&root, &by_openssl("good", "sha1"), &["good"]).failure(1).says("sha1 is too weak");
    verify(&root, &by_openssl("expired", "sha256"), &["expired"]).failure(1).says("expired");
    verify(&root, &by_openssl("almost", "sha256"), &["almost"])
        .failure(1)
        .says("2040 bits, at least 2048");
    patches_are_checked(&keys);
    deltas_are_checked(&keys);
    envelopes_are_checked(&keys, &root, &text);
    let damaged = keys.path("damaged.p7s");
    fs::write(&damaged, b"no signature").unwrap();
    verify(&root, &damaged, &["good"]).failure(1);
    verify(&root, &keys.path("missing.p7s"), &["good"]).failure(1);
}
