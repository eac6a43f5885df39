//! Private keys that cosign has encrypted: `scrypt` makes a key of the password, and `secretbox` of NaCl
//! encrypts by it.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use crypto_secretbox::aead::{Aead as _, KeyInit as _};
use crypto_secretbox::{Key, Nonce, XSalsa20Poly1305};
use scrypt::{Params, scrypt};
use serde::Deserialize;

use super::keys::KeyError;

/// Bytes of the key of a box, and of its nonce.
const KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 24;
/// The most that making the key may cost: cosign's N is 65,536 or less, r is 8 and p is 1. N of a million
/// takes 1 GiB.
const N_MAX: u64 = 1 << 18;
const R_MAX: u32 = 8;
const P_MAX: u32 = 4;

#[derive(Deserialize)]
struct Sealed {
    kdf: Derivation,
    cipher: Cipher,
    ciphertext: String,
}

#[derive(Deserialize)]
struct Derivation {
    name: String,
    params: Cost,
    salt: String,
}

#[derive(Deserialize)]
struct Cost {
    #[serde(rename = "N")]
    n: u64,
    r: u32,
    p: u32,
}

#[derive(Deserialize)]
struct Cipher {
    name: String,
    nonce: String,
}

/// The key in an encrypted file.
pub(super) fn open(bytes: &[u8], password: &[u8]) -> Result<Vec<u8>, KeyError> {
    let wrong = |what: &str| KeyError(format!("it is no encrypted key of cosign: {what}"));
    let sealed: Sealed = serde_json::from_slice(bytes).map_err(|error| wrong(&error.to_string()))?;
    let Cost { n, r, p } = sealed.kdf.params;
    if sealed.kdf.name != "scrypt" || sealed.cipher.name != "nacl/secretbox" {
        return Err(wrong("it is encrypted in another way"));
    }
    if !n.is_power_of_two() || !(2..=N_MAX).contains(&n) || r > R_MAX || p > P_MAX {
        return Err(wrong("its parameters of scrypt would cost too much"));
    }
    let decode = |text: &str| BASE64_STANDARD.decode(text).map_err(|error| wrong(&error.to_string()));
    let (salt, nonce, ciphertext) =
        (decode(&sealed.kdf.salt)?, decode(&sealed.cipher.nonce)?, decode(&sealed.ciphertext)?);
    if nonce.len() != NONCE_BYTES {
        return Err(wrong("its nonce has another length"));
    }
    let log_n = u8::try_from(n.trailing_zeros()).map_err(|error| wrong(&error.to_string()))?;
    let params = Params::new(log_n, r, p, KEY_BYTES).map_err(|error| wrong(&error.to_string()))?;
    let mut key = [0; KEY_BYTES];
    scrypt(password, &salt, &params, &mut key).map_err(|error| wrong(&error.to_string()))?;
    let cipher = XSalsa20Poly1305::new(Key::from_slice(&key));
    let opened = cipher.decrypt(Nonce::from_slice(&nonce), &*ciphertext);
    opened
        .map_err(|_| KeyError("it cannot be decrypted: the password in COSIGN_PASSWORD is wrong".to_owned()))
}
