//! Bindery's image runs on each of its platforms, without anything else.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use bindery_chart::{built, offered, root, run};
use flate2::read::GzDecoder;
use serde_json::Value;
use tempfile::TempDir;

const MANIFESTS: &str = concat!(
    include_str!("../../../examples/static-binding/1-volumes.yaml"),
    "\n---\n",
    include_str!("../../../examples/static-binding/2-claims.yaml"),
);

struct Layout(BTreeMap<PathBuf, Vec<u8>>);

struct Image {
    architecture: String,
    config: Value,
    /// The folder with the layer's files.
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

    /// The images, found by the index of platforms as for a pull.
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
            unpack(self.blob(layer), root.path());
        }
        let config = self.blob_json(&manifest["config"]);
        let architecture = config["architecture"].as_str().unwrap().to_owned();
        assert_eq!(descriptor["platform"]["architecture"], architecture.as_str());
        Image { architecture, config, root }
    }
}

impl Image {
    /// Runs the image's program as the image's user, with the image as its root.
    fn run(&self, arguments: &[&str], input: &str) -> String {
        let processor = self.processor();
        let mut chroot = Command::new("/usr/sbin/chroot");
        chroot.arg(format!("--userspec={}", self.config["config"]["User"].as_str().unwrap()));
        chroot.arg(self.root.path()).env_clear();
        if !self.is_native() {
            let emulator = format!("qemu-{processor}-static");
            let mut copy = Command::new("cp");
            copy.arg(Path::new("/usr/bin").join(&emulator)).arg(self.root.path());
            run(&mut copy, "").unwrap();
            chroot.arg(format!("/{emulator}"));
        }
        let entrypoint = self.config["config"]["Entrypoint"].as_array().unwrap().iter();
        chroot.args(entrypoint.map(|word| word.as_str().unwrap())).args(arguments);
        run(&mut chroot, input).unwrap_or_else(|why| panic!("{}: {why}", self.architecture))
    }

    fn processor(&self) -> &'static str {
        match self.architecture.as_str() {
            "amd64" => "x86_64",
            "arm64" => "aarch64",
            other => panic!("unknown architecture {other}"),
        }
    }

    fn is_native(&self) -> bool {
        self.processor() == std::env::consts::ARCH
    }

    fn target(&self) -> String {
        format!("{}-unknown-linux-{}", self.processor(), if self.is_native() { "gnu" } else { "musl" })
    }

    fn file(&self, name: &str) -> Vec<u8> {
        fs::read(self.root.path().join(name)).unwrap()
    }

    fn components(&self) -> Vec<Component> {
        let bill: Value = serde_json::from_slice(&self.file("bindery.cdx.json")).unwrap();
        assert_eq!((&bill["bomFormat"], &bill["specVersion"]), (&"CycloneDX".into(), &"1.6".into()));
        let components = bill["components"].as_array().unwrap().iter().map(|component| {
            let text = |field: &str| component[field].as_str().unwrap().to_owned();
            Component { name: text("name"), version: text("version"), purl: text("purl") }
        });
        components.collect()
    }
}

/// Unpacks a layer in another process. While a file is open for writing here, a program that another test
/// starts inherits it, and the file cannot be executed.
fn unpack(layer: &[u8], folder: &Path) {
    let mut archive = tempfile::NamedTempFile::new().unwrap();
    io::copy(&mut GzDecoder::new(layer), &mut archive).unwrap();
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--no-same-owner", "--directory"]).arg(folder).arg("--file").arg(archive.path());
    run(&mut tar, "").unwrap();
}

struct Component {
    name: String,
    version: String,
    purl: String,
}

/// The packages that a package of the workspace is compiled of for a target, each as `name-version`, by
/// cargo's resolver.
fn packages(package: &str, target: &str) -> BTreeSet<String> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root()).args(["tree", "--locked", "--package", package, "--target", target]);
    cargo.args(["--no-default-features", "--edges", "normal,no-proc-macro"]);
    cargo.args(["--prefix", "none", "--no-dedupe", "--format", "{p}"]);
    let printed = run(&mut cargo, "").unwrap();
    let packages = printed.lines().map(|line| {
        let (name, rest) = line.split_once(" v").unwrap();
        format!("{name}-{}", rest.split(' ').next().unwrap())
    });
    packages.collect()
}

/// The packages that a program names in the locations of panics, each as `name-version`.
fn traces(program: &[u8]) -> BTreeSet<String> {
    const FOLDER: &str = "/cargo/registry/src/";
    let text = String::from_utf8_lossy(program);
    let places = text.split(FOLDER).skip(1).filter_map(|place| place.split('/').nth(1));
    places.map(ToOwned::to_owned).collect()
}

/// The folders that the image was built from and in, which have other names on other machines.
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
fn an_image_plans_alone_as_this_machine_does() {
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
fn an_image_has_labels_and_the_licences_of_its_components() {
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
        assert!(image.root.path().join("LICENSE").is_file());
        let notices = fs::read_to_string(image.root.path().join("licenses.txt")).unwrap();
        for Component { name, version, .. } in image.components() {
            let is_named = notices.contains(&format!("\n{name} {version}: "));
            assert_eq!(is_named, !name.starts_with("bindery"), "{name}");
        }
        assert!(notices.contains("WARRANTY") && !notices.contains("\nbindery"), "{}", image.architecture);
    }
}

#[test]
fn a_bill_of_materials_lists_exactly_the_compiled_packages() {
    for image in Layout::read().images() {
        let is_package = |component: &&Component| component.purl.starts_with("pkg:cargo/");
        let components = image.components();
        let names = components.iter().filter(is_package).map(|it| format!("{}-{}", it.name, it.version));
        let listed: BTreeSet<_> = names.collect();
        let mut needed = packages("bindery", &image.target());
        needed.extend(packages("bindery-component", "wasm32-unknown-unknown"));
        assert_eq!(listed, needed, "{}", image.architecture);
        let traces = traces(&image.file("bindery"));
        assert!(traces.len() > 100, "{}: {traces:?}", image.architecture);
        let unlisted: Vec<_> = traces.difference(&listed).collect();
        assert!(unlisted.is_empty(), "{}: {unlisted:?}", image.architecture);
    }
}

/// Each library leaves a text in the program, and some a version.
#[test]
fn a_bill_of_materials_lists_linked_libraries() {
    const LIBRARIES: [(&str, &str); 2] = [("glibc", "GNU C Library ("), ("libunwind", "libunwind: ")];
    for image in Layout::read().images() {
        let components = image.components();
        let others = components.iter().filter(|component| !component.purl.starts_with("pkg:cargo/"));
        let others: BTreeMap<_, _> = others.map(|it| (it.name.as_str(), it)).collect();
        let names: Vec<_> = others.keys().copied().collect();
        let program = String::from_utf8_lossy(&image.file("bindery")).into_owned();
        for (name, trace) in LIBRARIES {
            assert_eq!(others.contains_key(name), program.contains(trace), "{name}: {}", image.architecture);
        }
        if image.is_native() {
            assert_eq!(names, ["glibc", "libgcc", "rust-std"]);
            for (name, source) in [("glibc", "glibc@"), ("libgcc", "gcc-")] {
                let Component { version, purl, .. } = others[name];
                assert!(purl.starts_with("pkg:deb/") && purl.contains(&format!("/{source}")), "{purl}");
                assert!(program.contains(&format!(" {version})")), "{name} is not of {version}");
            }
        } else {
            assert_eq!(names, ["libunwind", "musl", "rust-std", "zig"]);
            let clang = format!("clang version {}", others["libunwind"].version);
            assert!(program.contains(&clang), "{clang}");
        }
    }
}

#[test]
fn an_image_built_again_has_the_same_bytes_and_digest() {
    let archive = offered("BINDERY_IMAGE");
    let first = fs::read(&archive).unwrap();
    let digest = Layout::read().json("index.json")["manifests"][0]["digest"].as_str().unwrap().to_owned();
    let mut again = Command::new(offered("BINDERY_XTASK"));
    let printed = run(again.args(["image", "--profile", "image-test"]), "").unwrap();
    let hint = "or has the checkout changed since the tests began? The image's labels name its state";
    assert_eq!(printed, format!("{} {digest}\n", archive.display()), "{hint}");
    assert!(fs::read(&archive).unwrap() == first, "{} has changed; {hint}", archive.display());
}

/// A folder's name would change the digest. `cargo xtask soak image` compares two builds, but takes an hour.
#[test]
fn an_image_names_no_folder_of_its_build_machine() {
    let folders = folders_of_this_machine();
    for image in Layout::read().images() {
        let mut left = vec![image.root.path().to_owned()];
        while let Some(file) = left.pop() {
            if file.is_dir() {
                left.extend(fs::read_dir(file).unwrap().map(|entry| entry.unwrap().path()));
                continue;
            }
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
