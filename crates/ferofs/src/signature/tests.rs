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
fn weak_keys_are_found_in_descriptions() {
    let shown = |algorithm: &str, bits: u32| {
        format!("   Public Key Algorithm: {algorithm}\n       Public-Key: ({bits} bit)\n")
    };
    let (good, weak) = (shown("rsaEncryption", 2048), shown("rsaEncryption", 2047));
    assert_eq!(weak_key(&good), None);
    assert_eq!(weak_key(&(good + &weak)), Some(("rsaEncryption", 2047, 2048)));
    assert_eq!(weak_key(&shown("id-ecPublicKey", 256)), None);
    assert_eq!(weak_key(&shown("id-ecPublicKey", 192)), Some(("id-ecPublicKey", 192, 224)));
}

#[test]
fn a_signature_is_one_sequence() {
    let long = [&[0x30, 0x82, 1, 0][..], &[0; 256]].concat();
    for (bytes, len) in [
        (&[0x30, 0][..], Some(2)),
        (&[0x30, 3, 1], Some(5)),
        (&long, Some(260)),
        (&[0x30], None),
        (&[0x31, 0], None),
        // Not DER: an indefinite length, and lengths in longer forms than needed.
        (&[0x30, 0x80, 0, 0], None),
        (&[0x30, 0x81, 0x7f], None),
        (&[0x30, 0x82, 0, 0x80], None),
        (&[0x30, 0x85, 1, 0, 0, 0, 0], None),
    ] {
        assert_eq!(der_len(bytes), len, "{bytes:?}");
    }
    assert_eq!(envelope_problem(&long), None);
    assert!(envelope_problem(&[&long[..], &[0]].concat()).is_some());
    assert!(envelope_problem(&long[..259]).is_some());
}

#[test]
fn content_is_found_in_descriptions() {
    assert!(is_detached("    eContent: <ABSENT>\n"));
    for attached in ["", "  eContent: \n   0000 - 61\n", "  eContent: <ABSENT>\n eContent: 61\n"] {
        assert!(!is_detached(attached), "{attached}");
    }
}

#[test]
fn one_line_gives_the_reason() {
    let text = "Verification failure\n00A1:error:10800075:PKCS7 routines:PKCS7_verify:certificate verify error:../crypto/pkcs7/pk7_smime.c:296:Verify error: certificate has expired\n";
    assert_eq!(reason(text), "openssl: certificate verify error: certificate has expired");
    assert_eq!(reason("Could not open file\n"), "openssl: Could not open file");
    assert_eq!(reason(""), "openssl: failed without a message");
}
