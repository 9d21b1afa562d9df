//! Configurations of images: what a container of an image runs, and the digests of the layers'
//! content.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::reference::is_digest;

/// The configuration of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageConfig {
    fields: Map<String, Value>,
    diff_ids: Vec<String>,
}

#[derive(Deserialize)]
struct Fields {
    #[serde(default)]
    rootfs: Rootfs,
}

#[derive(Default, Deserialize)]
struct Rootfs {
    #[serde(default)]
    diff_ids: Vec<String>,
}

impl ImageConfig {
    /// Parses a configuration.
    ///
    /// # Errors
    /// The problem.
    pub fn parse(bytes: impl AsRef<[u8]>) -> Result<Self, String> {
        let fields: Map<String, Value> =
            serde_json::from_slice(bytes.as_ref()).map_err(|error| error.to_string())?;
        let rootfs: Fields = serde_json::from_value(Value::Object(fields.clone()))
            .map_err(|error| error.to_string())?;
        let diff_ids = rootfs.rootfs.diff_ids;
        if !diff_ids.iter().all(|id| is_digest(id)) {
            return Err("names a layer by a digest that is not SHA-256".into());
        }
        Ok(Self { fields, diff_ids })
    }

    /// A configuration without a program. It has no time: the same image always has the same
    /// configuration.
    pub(super) fn empty() -> Self {
        let fields = Map::from_iter([("config".to_owned(), json!({}))]);
        Self { fields, diff_ids: Vec::new() }
    }

    /// The same for a platform, `linux/arm/v7`, if it names none.
    pub(super) fn for_platform(mut self, platform: &str) -> Self {
        if !self.fields.contains_key("os") && !self.fields.contains_key("architecture") {
            for (name, part) in
                ["os", "architecture", "variant"].into_iter().zip(platform.split('/'))
            {
                self.fields.insert(name.into(), part.into());
            }
        }
        self
    }

    /// The digests of the layers' content, without compression; the lowest layer is first.
    #[must_use]
    pub fn diff_ids(&self) -> &[String] {
        &self.diff_ids
    }

    /// The configuration of an image with the same program, and with these layers, which are EROFS
    /// images. The history tells of what is taken over that it made no layer, unless the number of
    /// layers is the same.
    pub(super) fn with_layers(&self, diff_ids: Vec<String>) -> Self {
        let mut fields = self.fields.clone();
        fields.insert("rootfs".into(), json!({ "type": "layers", "diff_ids": diff_ids }));
        let mut features: Vec<Value> =
            fields.get("os.features").and_then(Value::as_array).cloned().unwrap_or_default();
        if !features.iter().any(|feature| feature == EROFS) {
            features.push(EROFS.into());
        }
        fields.insert("os.features".into(), features.into());
        let history = fields.get("history").and_then(Value::as_array).cloned().unwrap_or_default();
        fields.insert("history".into(), history_of(history, diff_ids.len()).into());
        Self { fields, diff_ids }
    }

    /// As JSON.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        Value::Object(self.fields.clone()).to_string().into_bytes()
    }
}

/// The feature of the operating system that layers with EROFS images need, as containerd names it.
const EROFS: &str = "erofs";

/// A history with one entry for each layer, and with others that say that they made no layer.
fn history_of(mut history: Vec<Value>, layers: usize) -> Vec<Value> {
    const EMPTY: &str = "empty_layer";
    let made_layer = |entry: &&Value| entry.get(EMPTY).and_then(Value::as_bool) != Some(true);
    let mut known = history.iter().filter(made_layer).count();
    if known > layers {
        for entry in history.iter_mut().filter_map(Value::as_object_mut) {
            entry.insert(EMPTY.into(), true.into());
        }
        known = 0;
    }
    let new = layers.saturating_sub(known);
    history.extend((0..new).map(|_| json!({ "created_by": "ferofs push" })));
    history
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(digit: &str) -> String {
        format!("sha256:{}", digit.repeat(64))
    }

    fn parse(text: &str) -> Result<ImageConfig, String> {
        ImageConfig::parse(text)
    }

    fn config(history: &str, ids: &[String]) -> ImageConfig {
        let ids = ids.join("\",\"");
        let text = format!(
            r#"{{"architecture":"riscv64","os":"linux","config":{{"Cmd":["/bin/sh"]}},"x-own":1,"rootfs":{{"type":"layers","diff_ids":["{ids}"]}},"history":{history}}}"#
        );
        parse(&text).unwrap()
    }

    fn json_of(config: &ImageConfig) -> Value {
        serde_json::from_slice(&config.to_bytes()).unwrap()
    }

    #[test]
    fn all_but_the_layers_is_taken_over() {
        let history =
            r#"[{"created_by":"a"},{"created_by":"env","empty_layer":true},{"created_by":"b"}]"#;
        let taken = config(history, &[id("a"), id("b")]);
        assert_eq!(taken.diff_ids(), [id("a"), id("b")]);
        let merged = json_of(&taken.with_layers(vec![id("c")]));
        assert_eq!(
            (&merged["architecture"], &merged["config"]["Cmd"][0], &merged["x-own"]),
            (&json!("riscv64"), &json!("/bin/sh"), &json!(1))
        );
        assert_eq!(merged["rootfs"], json!({ "type": "layers", "diff_ids": [id("c")] }));
        assert_eq!(merged["os.features"], json!(["erofs"]));
        let empty: Vec<_> = merged["history"]
            .as_array()
            .unwrap()
            .iter()
            .map(|h| h["empty_layer"] == true)
            .collect();
        assert_eq!(empty, [true, true, true, false]);
        // As many layers as before, and one more.
        let same = json_of(&taken.with_layers(vec![id("c"), id("d")]));
        assert_eq!(same["history"].as_array().unwrap().len(), 3);
        let more = json_of(&taken.with_layers(vec![id("c"), id("d"), id("e")]));
        assert_eq!(more["history"][3]["created_by"], "ferofs push");
        // The feature is named once.
        let again = taken.with_layers(vec![id("c")]).with_layers(vec![id("d")]);
        assert_eq!(json_of(&again)["os.features"], json!(["erofs"]));
    }

    #[test]
    fn platforms() {
        let of = |platform| ImageConfig::empty().for_platform(platform).with_layers(vec![id("a")]);
        let made = json_of(&of("linux/arm/v7"));
        assert_eq!(
            (&made["os"], &made["architecture"], &made["variant"]),
            (&json!("linux"), &json!("arm"), &json!("v7"))
        );
        assert_eq!(json_of(&of("linux/amd64")).get("variant"), None);
        let known = json_of(&config("[]", &[id("a")]).for_platform("linux/arm/v7"));
        assert_eq!((&known["architecture"], known.get("variant")), (&json!("riscv64"), None));
    }

    #[test]
    fn wrong_configurations() {
        for wrong in
            ["", "[]", r#"{"rootfs":{"diff_ids":["sha256:1"]}}"#, r#"{"rootfs":{"diff_ids":"x"}}"#]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        let history = parse(&format!(
            r#"{{"rootfs":{{"diff_ids":["{}"]}},"history":[1,2],"os.features":7}}"#,
            id("a")
        ));
        assert_eq!(
            json_of(&history.unwrap().with_layers(vec![id("b")]))["os.features"],
            json!(["erofs"])
        );
    }
}
