use super::*;

fn layer(kind: &str, digit: &str) -> Descriptor {
    let digest = format!("sha256:{}", digit.repeat(64));
    Descriptor { media_type: kind.into(), digest, size: 1, ..Descriptor::default() }
}

fn chosen(layers: &[Descriptor], choice: Option<&str>) -> Result<String, String> {
    let manifest = Manifest { layers: layers.to_vec(), ..Manifest::default() };
    let choice = choice.map(|choice| choice.parse().unwrap());
    choose_layer(&manifest, choice.as_ref()).map(|layer| layer.digest[7..8].to_owned()).map_err(
        |error| match error {
            Choice::Tar(count) => format!("tar {count}"),
            Choice::Wrong(problem) => problem,
        },
    )
}

#[test]
fn layers() {
    let erofs = |digit| layer("application/vnd.erofs.layer.v1", digit);
    let tar = |digit| layer("application/vnd.oci.image.layer.v1.tar+gzip", digit);
    assert_eq!(chosen(&[erofs("a")], None).unwrap(), "a");
    assert_eq!(chosen(&[tar("b"), erofs("a")], None).unwrap(), "a");
    assert_eq!(chosen(&[tar("b"), tar("c")], None).unwrap_err(), "tar 2");
    assert_eq!(chosen(&[tar("b")], Some("0")).unwrap_err(), "tar 1");
    assert!(chosen(&[erofs("a"), erofs("b")], None).unwrap_err().contains("--oci-layer"));
    assert_eq!(chosen(&[erofs("a"), erofs("b")], Some("1")).unwrap(), "b");
    assert_eq!(
        chosen(&[erofs("a"), erofs("b")], Some(&format!("sha256:{}", "b".repeat(64)))).unwrap(),
        "b"
    );
    assert!(chosen(&[erofs("a")], Some("1")).unwrap_err().contains("number 1"));
    assert!(
        chosen(&[layer("application/vnd.erofs+zstd", "a")], None)
            .unwrap_err()
            .contains("compressed")
    );
    assert!(chosen(&[], None).unwrap_err().contains("no EROFS layer"));
    // A type that nobody knows may be an image: the caller says so.
    assert_eq!(chosen(&[layer("application/octet-stream", "a")], Some("0")).unwrap(), "a");
    assert!(
        chosen(&[layer("application/vnd.erofs.layer.v1+zstd", "a")], Some("0"))
            .unwrap_err()
            .contains("ferofs pull")
    );
}

#[test]
fn platforms() {
    use super::super::manifest::Platform;
    let image =
        |digit, os: &str, architecture: &str, variant: Option<&str>, erofs: bool| Descriptor {
            platform: Some(Platform {
                os: os.into(),
                architecture: architecture.into(),
                variant: variant.map(str::to_owned),
                os_features: erofs.then(|| "erofs".to_owned()).into_iter().collect(),
            }),
            ..layer("", digit)
        };
    let manifests = vec![
        image("a", "linux", "amd64", None, false),
        image("b", "linux", "amd64", None, true),
        image("c", "linux", "arm", Some("v6"), false),
        image("d", "linux", "arm", Some("v7"), false),
    ];
    let index = Index { manifests, ..Index::default() };
    let chosen =
        |platform| choose_platform(&index, platform).map(|image| image.digest[7..8].to_owned());
    assert_eq!(chosen("linux/amd64").unwrap(), "b");
    assert_eq!(chosen("linux/arm").unwrap(), "c");
    assert_eq!(chosen("linux/arm/v7").unwrap(), "d");
    assert!(chosen("linux/s390x").unwrap_err().contains("linux/arm"));
    let index = Index { manifests: vec![layer("", "e")], ..Index::default() };
    assert_eq!(choose_platform(&index, "linux/amd64").unwrap().digest[7..8], *"e");
}
