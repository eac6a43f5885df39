//! Bindery's image: it runs where there is nothing else, on each platform that it is for.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use bindery_chart::{built, offered, root, run};
use flate2::read::GzDecoder;
use serde_json::Value;
use tempfile::TempDir;

/// Volumes and claims, to be decided.
const MANIFESTS: &str = concat!(
    include_str!("../../../examples/static-binding/1-volumes.yaml"),
    "\n---\n",
    include_str!("../../../examples/static-binding/2-claims.yaml"),
);

/// An image layout, file by file.
struct Layout(BTreeMap<PathBuf, Vec<u8>>);

/// One platform's image.
struct Image {
    architecture: String,
    config: Value,
    /// What the layer holds.
    root: TempDir,
}

impl Layout {
    fn read() -> Self {
        let mut files = BTreeMap::new();
        for entry in tar::Archive::new(fs::File::open(offered("BINDERY_IMAGE")).unwrap()).entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            files.insert(entry.path().unwrap().into_owned(), content);
        }
        Self(files)
    }

    fn json(&self, path: &str) -> Value {
        serde_json::from_slice(&self.0[Path::new(path)]).unwrap()
    }

    fn blob(&self, descriptor: &Value) -> &[u8] {
        let digest = descriptor["digest"].as_str().unwrap();
        let content = &self.0[&Path::new("blobs").join(digest.replace(':', "/"))];
        assert_eq!(content.len() as u64, descriptor["size"]);
        content
    }

    fn blob_json(&self, descriptor: &Value) -> Value {
        serde_json::from_slice(self.blob(descriptor)).unwrap()
    }

    /// The images, as whoever pulls one finds it: by the index of platforms.
    fn images(&self) -> Vec<Image> {
        assert_eq!(self.json("oci-layout")["imageLayoutVersion"], "1.0.0");
        let index = self.blob_json(&self.json("index.json")["manifests"][0]);
        let manifests = index["manifests"].as_array().unwrap();
        manifests.iter().map(|manifest| self.image(manifest)).collect()
    }

    fn image(&self, descriptor: &Value) -> Image {
        let manifest = self.blob_json(descriptor);
        let root = tempfile::tempdir().unwrap();
        for layer in manifest["layers"].as_array().unwrap() {
            tar::Archive::new(GzDecoder::new(self.blob(layer))).unpack(root.path()).unwrap();
        }
        let config = self.blob_json(&manifest["config"]);
        let architecture = config["architecture"].as_str().unwrap().to_owned();
        assert_eq!(descriptor["platform"]["architecture"], architecture.as_str());
        Image { architecture, config, root }
    }
}

impl Image {
    /// Runs the image's program, with nothing but the image below its root and as the image's user.
    fn run(&self, arguments: &[&str], input: &str) -> String {
        let processor = self.processor();
        let mut chroot = Command::new("/usr/sbin/chroot");
        chroot.arg(format!("--userspec={}", self.config["config"]["User"].as_str().unwrap()));
        chroot.arg(self.root.path()).env_clear();
        if processor != std::env::consts::ARCH {
            let emulator = format!("qemu-{processor}-static");
            fs::copy(Path::new("/usr/bin").join(&emulator), self.root.path().join(&emulator)).unwrap();
            chroot.arg(format!("/{emulator}"));
        }
        let entrypoint = self.config["config"]["Entrypoint"].as_array().unwrap().iter();
        chroot.args(entrypoint.map(|word| word.as_str().unwrap())).args(arguments);
        run(&mut chroot, input).unwrap_or_else(|why| panic!("{}: {why}", self.architecture))
    }

    /// As Rust calls it.
    fn processor(&self) -> &'static str {
        match self.architecture.as_str() {
            "amd64" => "x86_64",
            "arm64" => "aarch64",
            other => panic!("nothing is known of {other}"),
        }
    }

    /// What the image's bill of materials lists, by name, with its versions.
    fn components(&self) -> BTreeMap<String, Vec<String>> {
        let bill = fs::read(self.root.path().join("bindery.cdx.json")).unwrap();
        let bill: Value = serde_json::from_slice(&bill).unwrap();
        assert_eq!((&bill["bomFormat"], &bill["specVersion"]), (&"CycloneDX".into(), &"1.6".into()));
        let mut components: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for component in bill["components"].as_array().unwrap() {
            let text = |field: &str| component[field].as_str().unwrap().to_owned();
            assert!(text("purl").starts_with("pkg:"), "{component}");
            components.entry(text("name")).or_default().push(text("version"));
        }
        components
    }
}

/// Where the image was built, and from what: elsewhere these folders have other names. A root folder is one everywhere.
fn folders_of_this_machine() -> Vec<PathBuf> {
    let archive = offered("BINDERY_IMAGE");
    let target = archive.ancestors().nth(3).expect("the archive lies in target/image/PROFILE");
    let set = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let home = set("HOME");
    let cargo = set("CARGO_HOME").or_else(|| Some(home.as_ref()?.join(".cargo")));
    let folders = [Some(target.to_owned()), Some(root().to_owned()), cargo, home];
    folders.into_iter().flatten().filter(|folder| folder.parent().is_some()).collect()
}

#[test]
fn an_image_decides_from_scratch_as_this_machine_does() {
    let images = Layout::read().images();
    let architectures: Vec<_> = images.iter().map(|image| image.architecture.as_str()).collect();
    assert_eq!(architectures, ["amd64", "arm64"]);
    let plan = ["plan", "-f", "-", "-o", "json"];
    let here = run(Command::new(built("bindery")).env_remove("BINDERY_ENGINE").args(plan), MANIFESTS);
    let here: Value = serde_json::from_str(&here.unwrap()).unwrap();
    for image in &images {
        for engine in ["native", "/bindery-engine.wasm"] {
            let there = image.run(&[&plan[..], &["--engine", engine]].concat(), MANIFESTS);
            let there: Value = serde_json::from_str(&there).unwrap();
            assert_eq!(there, here, "{} by {engine}", image.architecture);
        }
    }
}

#[test]
fn an_image_says_what_it_is_and_what_it_is_made_of() {
    for image in Layout::read().images() {
        let config = &image.config["config"];
        assert_eq!(config["User"], "65532:65532");
        let label = |name: &str| config["Labels"][format!("org.opencontainers.image.{name}")].as_str();
        assert_eq!(label("licenses"), Some("Apache-2.0"));
        let version = label("version").unwrap();
        assert!(image.run(&["--version"], "").contains(version));
        for name in ["title", "description", "source", "created"] {
            assert!(label(name).is_some_and(|text| !text.is_empty()), "{name}");
        }
        let components = image.components();
        let c_library = if image.processor() == std::env::consts::ARCH { "glibc" } else { "musl" };
        let works = ["wasmtime", "rustls", "kube-client", "rust-std", c_library];
        for name in works.iter().chain(&["bindery-engine", "bindery-component"]) {
            assert_eq!(components[*name].len(), 1, "{name}");
        }
        // What compiles and tests Bindery is not in the image.
        for name in ["proptest", "clap_derive", "windows-sys"] {
            assert!(!components.contains_key(name), "{name}");
        }
        assert!(image.root.path().join("LICENSE").is_file());
        // And on what terms the works of others are.
        let notices = fs::read_to_string(image.root.path().join("licenses.txt")).unwrap();
        for name in works {
            assert!(notices.contains(&format!("\n{name} {}: ", components[name][0])), "{name}");
        }
        assert!(notices.contains("WARRANTY") && !notices.contains("\nbindery"), "{}", image.architecture);
    }
}

/// Otherwise it would have another digest elsewhere. `cargo xtask soak image` compares two builds, but takes an hour.
#[test]
fn an_image_names_no_folder_of_the_machine_that_built_it() {
    let folders = folders_of_this_machine();
    for image in Layout::read().images() {
        for file in fs::read_dir(image.root.path()).unwrap() {
            let file = file.unwrap().path();
            let content = fs::read(&file).unwrap();
            for folder in &folders {
                let folder = folder.join("");
                let name = folder.as_os_str().as_encoded_bytes();
                let is_named = content.windows(name.len()).any(|bytes| bytes == name);
                assert!(!is_named, "{}: {} names {}", image.architecture, file.display(), folder.display());
            }
        }
    }
}
