//! What a registry may cost. All are in bytes unless they say otherwise.

/// A manifest or an index. Registries take 4 MiB; a manifest of a policy has less than 2 KiB, and one with 64
/// signatures of cosign 2 less than 64 KiB.
pub const MANIFEST_MAX: usize = 1 << 20;
/// The configuration of a manifest.
pub const CONFIG_MAX: usize = 1 << 20;
/// A module. The host compiles no larger one.
pub const MODULE_MAX: usize = 64 << 20;
/// A file of cases, or the page.
pub const EXTRA_MAX: usize = 1 << 20;
/// Files of cases of one artifact.
pub const EXTRAS_MAX: usize = 16;
/// A payload of cosign 2, or a bundle of cosign 3.
pub const SIGNATURE_MAX: usize = 256 << 10;
/// How many signatures of an artifact are looked at. More are not, so that a registry with a thousand of them
/// does not cost more.
pub const SIGNATURES_MAX: usize = 64;
/// How many keys may be trusted: each signature is checked by each key.
pub const KEYS_MAX: usize = 16;
/// How many referrers of an artifact are looked at, over all pages.
pub const REFERRERS_MAX: usize = 256;
/// Pages of referrers.
pub const PAGES_MAX: usize = 4;
/// Any other answer: a token, an error, the answer to an upload.
pub const ANSWER_MAX: usize = 64 << 10;
/// Redirects of a blob, one after the other.
pub const REDIRECTS_MAX: usize = 3;
/// Header lines of an answer.
pub const HEADERS_MAX: usize = 100;
/// Addresses of a host that are tried.
pub const ADDRESSES_MAX: usize = 8;
/// A file of credentials, or of keys.
pub const FILE_MAX: u64 = 1 << 20;
