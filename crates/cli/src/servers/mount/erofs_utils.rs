//! The options of erofs-utils for images on servers: `-o oci.NAME=VALUE` and `-o s3.NAME=VALUE`.
//! They also say what SOURCE is: the name of an image in a registry, without `oci://`, or
//! BUCKET/KEY, without `s3://`.

use crate::args::image::ImageArgs;
use crate::cmd::mount::options::{InvalidOption, split, unquoted};
use crate::exit::{Concerning, Failure};
use crate::servers::args::remote::{RegistryArgs, StoreArgs};

/// The help of mount.erofs, with these options.
pub(crate) const HELP: &str = "mount.erofs -u DIR unmounts, and mount.erofs --reattach DIR mounts again what has lost its daemon. \
With -o oci.blob=, oci.layer=, oci.platform=, oci.username=, oci.password= and oci.insecure, IMAGE is the name of an image in a registry; with \
-o s3.endpoint=, s3.passwd_file=, s3.region=, s3.sig= and s3.urlstyle= it is BUCKET/KEY. Both are mounted through FUSE.";

/// Takes the options of erofs-utils out of `options`, and applies them to `image`, which the kernel
/// shall mount if `is_kernel`.
///
/// # Errors
/// An option that ferofs does not know, or whose value is wrong; an image on a server for the
/// kernel.
pub(crate) fn take(
    options: &mut [String],
    image: &mut ImageArgs,
    is_kernel: bool,
) -> Result<(), Failure> {
    apply(options, image).concerning(&image.path)?;
    if is_kernel && image.path.is_remote() {
        let reason = "the kernel cannot mount an image on a server; -t erofs.fuse can";
        return Err(Failure::about(&image.path, reason));
    }
    Ok(())
}

fn apply(options: &mut [String], image: &mut ImageArgs) -> Result<(), InvalidOption> {
    let (mut registry, mut store) = (None, None);
    for list in options.iter_mut() {
        let mut others = Vec::new();
        for option in split(list) {
            let (name, value) =
                option.split_once('=').map_or((option, None), |(n, v)| (n, Some(v)));
            let known = match (name.strip_prefix("oci."), name.strip_prefix("s3.")) {
                (Some(name), _) => {
                    set_registry(registry.get_or_insert_default(), name, value.map(unquoted))
                }
                (_, Some(name)) => {
                    set_store(store.get_or_insert_default(), name, value.map(unquoted))
                }
                _ => {
                    others.push(option);
                    Ok(())
                }
            };
            // The value may be a password.
            known.map_err(|problem| InvalidOption(name.to_owned(), problem))?;
        }
        *list = others.join(",");
    }
    match (registry, store) {
        (Some(_), Some(_)) => {
            let problem = "an image is in a registry (oci.) or in an S3 store (s3.)".to_owned();
            return Err(InvalidOption("s3.".to_owned(), problem));
        }
        (Some(registry), None) => {
            if registry.password.is_some() && registry.user.is_none() {
                return Err(InvalidOption(
                    "oci.password".to_owned(),
                    "needs oci.username".to_owned(),
                ));
            }
            image.servers.remote.set_registry(registry);
            set_scheme(image, "oci://");
        }
        (None, Some(store)) => {
            image.servers.remote.set_store(store);
            set_scheme(image, "s3://");
        }
        (None, None) => {}
    }
    Ok(())
}

fn set_scheme(image: &mut ImageArgs, scheme: &str) {
    if !image.path.is_remote() {
        let mut location = std::ffi::OsString::from(scheme);
        location.push(&image.path.given);
        image.path = location.into();
    }
}

fn set_registry(
    registry: &mut RegistryArgs,
    name: &str,
    value: Option<&str>,
) -> Result<(), String> {
    let text = || value.map(str::to_owned).ok_or("needs a value");
    match name {
        "blob" | "layer" if registry.layer.is_some() => {
            return Err("one layer is mounted, by oci.blob or by oci.layer".to_owned());
        }
        "blob" => {
            let digest = text()?;
            let digest = if digest.contains(':') { digest } else { format!("sha256:{digest}") };
            // A number would be the position of the layer.
            registry.layer = Some(
                digest.parse().map_err(|_| "not a digest: sha256: and 64 hexadecimal digits")?,
            );
        }
        "layer" => {
            let position: usize =
                text()?.parse().map_err(|_| "not the number of a layer, from 0")?;
            registry.layer = Some(ferofs_serve::oci::LayerChoice::Index(position));
        }
        "platform" => registry.platform = Some(text()?),
        "username" => registry.user = Some(text()?),
        "password" => registry.password = Some(text()?),
        "insecure" if value.is_none() => registry.plain_http = true,
        "insecure" => return Err("takes no value".to_owned()),
        "tarindex" | "zinfo" => {
            let other = "ferofs does not mount tar archives; ferofs convert makes an EROFS image of the image";
            return Err(other.to_owned());
        }
        _ => return Err(unknown("blob, layer, platform, username, password and insecure")),
    }
    Ok(())
}

fn set_store(store: &mut StoreArgs, name: &str, value: Option<&str>) -> Result<(), String> {
    let value = value.ok_or("needs a value");
    match (name, value) {
        ("endpoint", value) => {
            let value = value?;
            let scheme = if value.contains("://") { "" } else { "https://" };
            store.endpoint = Some(format!("{scheme}{value}"));
        }
        ("passwd_file", value) => store.passwd_file = Some(value?.into()),
        ("region", value) => store.region = Some(value?.to_owned()),
        ("urlstyle", value) => {
            store.is_path_style = match value? {
                "vhost" => false,
                "path" => true,
                _ => return Err("neither vhost nor path".to_owned()),
            };
        }
        ("sig", value) => match value? {
            "4" => {}
            "2" => return Err("ferofs signs with version 4 only".to_owned()),
            _ => return Err("neither 2 nor 4".to_owned()),
        },
        _ => return Err(unknown("endpoint, passwd_file, region, sig and urlstyle")),
    }
    Ok(())
}

fn unknown(known: &str) -> String {
    format!("unknown; the options are {known}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(source: &str, list: &str) -> Result<(ImageArgs, String), String> {
        let mut image = ImageArgs::of(source);
        let mut options = vec![list.to_owned()];
        apply(&mut options, &mut image).map_err(|error| error.to_string())?;
        Ok((image, options.join("+")))
    }

    #[test]
    fn sources_are_names_in_registries_and_stores() {
        let (image, rest) = taken(
            "h.x/app:1",
            "ro,oci.layer=2,oci.insecure,nodev,oci.username=me,oci.password=\"a,b\"",
        )
        .unwrap();
        assert_eq!(
            (image.path.given.to_str(), rest.as_str()),
            (Some("oci://h.x/app:1"), "ro,nodev")
        );
        let options = image.servers.remote.options().unwrap();
        assert_eq!(options.oci.user, Some(("me".into(), "a,b".into())));
        assert_eq!(options.oci.plain_http, Some(true));
        assert_eq!(options.oci.layer, Some(ferofs_serve::oci::LayerChoice::Index(2)));

        let (image, _) =
            taken("bucket/a/key", "s3.endpoint=s3.example.org,s3.region=r,s3.sig=4").unwrap();
        assert_eq!(image.path, "s3://bucket/a/key".into());
        let options = image.servers.remote.options().unwrap();
        assert_eq!(options.s3.endpoint.as_deref(), Some("https://s3.example.org"));
        assert_eq!(options.s3.path_style, Some(false));

        assert_eq!(
            taken("oci://h.x/app", "oci.platform=linux/arm64").unwrap().0.path,
            "oci://h.x/app".into()
        );
        assert_eq!(taken("dir/image", "ro").unwrap().0.path, "dir/image".into());
    }

    #[test]
    fn a_digest_may_omit_the_name_of_the_hash() {
        let hex = "ab".repeat(32);
        let layer = |list: &str| {
            taken("a", list).map(|(image, _)| image.servers.remote.chosen_layer().cloned())
        };
        for list in [format!("oci.blob={hex}"), format!("oci.blob=sha256:{hex}")] {
            let digest = ferofs_serve::oci::LayerChoice::Digest(format!("sha256:{hex}"));
            assert_eq!(layer(&list), Ok(Some(digest)), "{list}");
        }
        assert!(layer(&format!("oci.blob={hex},oci.layer=0")).is_err());
    }

    #[test]
    fn what_is_wrong_is_named_without_its_value() {
        for (list, reason) in [
            ("oci.layer=x", "-o oci.layer: not the number"),
            ("oci.layer=-1", "not the number"),
            ("oci.blob=12", "not a digest"),
            ("oci.insecure=1", "takes no value"),
            ("oci.password=secret", "needs oci.username"),
            ("oci.secret=secret", "unknown; the options are blob"),
            ("oci.tarindex=/t", "ferofs convert"),
            ("s3.sig=2", "version 4 only"),
            ("s3.urlstyle=dns", "neither vhost nor path"),
            ("s3.endpoint", "needs a value"),
            ("s3.region=a,oci.layer=0", "or in an S3 store"),
        ] {
            let error = taken("a", list).map(drop).unwrap_err();
            assert!(error.contains(reason) && !error.contains("=secret"), "{list}: {error}");
        }
    }
}
