//! Media types.

/// A manifest.
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// A list of manifests.
pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// The configuration of a WebAssembly artifact, as the CNCF's layout has it and `wkg` writes it.
pub const WASM_CONFIG: &str = "application/vnd.wasm.config.v0+json";
/// Its layer.
pub const WASM_LAYER: &str = "application/wasm";
/// The older pair of both, which is read too.
pub const OLD_WASM_CONFIG: &str = "application/vnd.wasm.config.v1+json";
/// The layer of the older pair.
pub const OLD_WASM_LAYER: &str = "application/vnd.wasm.content.layer.v1+wasm";
/// The configuration of an artifact that needs none.
pub const EMPTY: &str = "application/vnd.oci.empty.v1+json";
/// The artifact type of golden cases.
pub const CASES: &str = "application/vnd.bindery.policy.cases.v1";
/// The layer of a file of cases.
pub const CASES_LAYER: &str = "application/yaml";
/// The artifact type of the page.
pub const PAGE: &str = "application/vnd.bindery.policy.page.v1";
/// The layer of the page.
pub const PAGE_LAYER: &str = "text/markdown";
/// A payload that cosign 2 signs.
pub const SIMPLE_SIGNING: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
/// A bundle of cosign 3.
pub const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
/// The configuration of an image, as cosign 2 writes it for signatures.
pub const IMAGE_CONFIG: &str = "application/vnd.oci.image.config.v1+json";

/// Annotation of a layer: the name of its file.
pub const TITLE: &str = "org.opencontainers.image.title";
/// Annotation of an entry of a layout: its tag, as oras, skopeo and regclient read and write it.
pub const REF_NAME: &str = "org.opencontainers.image.ref.name";
/// Annotation of an entry of a layout: host, repository and tag, as containerd and Docker read and write it.
pub const IMAGE_NAME: &str = "io.containerd.image.name";
/// Annotation of the manifest of a policy: the digests of the files of its cases. The signature covers it.
pub const CASES_ANNOTATION: &str = "dev.bindery.policy.cases";
/// Annotation of the manifest of a policy: the digest of its page.
pub const PAGE_ANNOTATION: &str = "dev.bindery.policy.page";
