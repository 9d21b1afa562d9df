use super::choice::one;
use super::document::{Digest, Index, LayerKind, Manifest};
use super::*;
use crate::options::oci::Platform;

fn digest(digit: char) -> String {
    format!("sha256:{}", digit.to_string().repeat(64))
}

fn entry(digit: char, rest: &str) -> String {
    let kind = "application/vnd.oci.image.manifest.v1+json";
    format!(r#"{{"mediaType":"{kind}","digest":"{}","size":7{rest}}}"#, digest(digit))
}

fn index(entries: &[String]) -> Index {
    serde_json::from_str(&format!(r#"{{"manifests":[{}]}}"#, entries.join(","))).unwrap()
}

fn platform(text: &str) -> String {
    let platform: Platform = text.parse().unwrap();
    let variant = platform.variant.map_or(String::new(), |v| format!(r#","variant":"{v}""#));
    format!(r#","platform":{{"os":"{}","architecture":"{}"{variant}}}"#, platform.os, platform.architecture)
}

#[test]
fn the_platform_chooses() {
    let about =
        format!("{},\"annotations\":{{\"vnd.docker.reference.type\":\"x\"}}", platform("linux/amd64"));
    let index = index(&[
        entry('a', &platform("linux/amd64")),
        entry('b', &platform("linux/arm/v6")),
        entry('c', &platform("linux/arm/v7")),
        entry('d', &platform("unknown/unknown")),
        entry('e', &about),
    ]);
    let chosen = |text: &str| one(&index, None, Some(&text.parse().unwrap()));
    assert_eq!(chosen("linux/amd64").unwrap().digest.to_string(), digest('a'));
    assert_eq!(chosen("linux/arm/v7").unwrap().digest.to_string(), digest('c'));
    assert_eq!(
        chosen("linux/arm").unwrap_err(),
        OciFault::Ambiguous(vec!["linux/arm/v6".into(), "linux/arm/v7".into()])
    );
    let error = chosen("linux/s390x").unwrap_err().to_string();
    assert!(error.starts_with("no image for linux/s390x; available: linux/amd64, linux/arm/v6,"), "{error}");
    assert!("linux".parse::<Platform>().is_err() && "a/b/c/d".parse::<Platform>().is_err());
}

#[test]
fn names_choose_and_one_image_needs_none() {
    let name = |text: &str| format!(r#","annotations":{{"org.opencontainers.image.ref.name":"{text}"}}"#);
    let two = index(&[entry('a', &name("one")), entry('b', &name("two")), entry('b', &name("latest"))]);
    assert_eq!(one(&two, Some("two"), None).unwrap().digest.to_string(), digest('b'));
    let error = one(&two, None, None).unwrap_err();
    assert!(matches!(error, OciFault::Ambiguous(names) if names[0] == "one" && names.len() == 2));
    assert!(matches!(one(&two, Some("none"), None), Err(OciFault::NoImage { .. })));
    // A single image is selected even if it is for another platform.
    let only = index(&[entry('a', &platform("plan9/mips"))]);
    assert!(one(&only, None, None).is_ok());
    assert!(one(&only, None, Some(&Platform::of_this_machine())).is_err());
}

#[test]
fn digests_lead_nowhere_else() {
    for bad in ["", "sha256", "sha256:", "md5:00", "sha256:../../etc/passwd", &digest('G'), &digest('A')] {
        assert!(Digest::try_from(bad.to_owned()).is_err(), "{bad}");
    }
    let good = Digest::try_from(digest('0')).unwrap();
    assert_eq!(good.path(), format!("blobs/sha256/{}", "0".repeat(64)));
}

#[test]
fn layers_are_recognized_by_their_type() {
    let layer = |kind: &str| format!(r#"{{"mediaType":"{kind}","digest":"{}","size":1}}"#, digest('1'));
    for (kind, expected) in [
        ("application/vnd.oci.image.layer.v1.tar", LayerKind::Archive),
        ("application/vnd.oci.image.layer.v1.tar+zstd", LayerKind::Archive),
        ("application/vnd.docker.image.rootfs.diff.tar.gzip", LayerKind::Archive),
        ("application/vnd.oci.image.layer.v1.tar+gzip+encrypted", LayerKind::Encrypted),
        ("application/vnd.cncf.helm.chart.content.v1.tar+gzip", LayerKind::Other),
        ("application/vnd.oci.image.layer.v1.tarball", LayerKind::Other),
    ] {
        let text = format!(r#"{{"config":{},"layers":[{}]}}"#, layer("x"), layer(kind));
        let manifest: Manifest = serde_json::from_str(&text).unwrap();
        assert_eq!(manifest.layers[0].layer_kind(), expected, "{kind}");
    }
}
