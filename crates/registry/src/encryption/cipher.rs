//! The algorithms, each in the layout that upstream stores.

use aes::{Aes128, Aes192, Aes256};
use aes_gcm::aead::consts::U12;
use aes_gcm::aead::{Aead, KeyInit, Payload};
use aes_gcm::{AesGcm, Nonce};
use cbc::cipher::block_padding::Pkcs7;
use cbc::cipher::{BlockModeDecrypt, BlockModeEncrypt, KeyIvInit};
use poly1305::Poly1305;
use ring::rand::{SecureRandom, SystemRandom};
use salsa20::XSalsa20;
use salsa20::cipher::StreamCipher;

const GCM_NONCE_BYTES: usize = 12;
const CBC_BLOCK_BYTES: usize = 16;
const SECRETBOX_NONCE_BYTES: usize = 24;
const SECRETBOX_TAG_BYTES: usize = 16;
/// The keystream's first bytes are the key of the tag.
const SECRETBOX_TAG_KEY_BYTES: usize = 32;

/// Why a value cannot be encrypted or decrypted.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CipherError {
    #[error("the stored data was shorter than the required size")]
    TooShort,
    #[error("the stored data is not a multiple of the block size")]
    NotBlocks,
    #[error("invalid padding on input")]
    Padding,
    #[error("cipher: message authentication failed")]
    Authentication,
    #[error("unable to read sufficient random bytes")]
    Random,
    /// No key of another length comes through the configuration's checks.
    #[error("the key has a wrong length")]
    KeyLength,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    AesGcm,
    AesCbc,
    Secretbox,
}

impl Algorithm {
    /// What stands before values, followed by the key's name and a colon.
    pub fn prefix(self) -> &'static str {
        match self {
            Algorithm::AesGcm => "k8s:enc:aesgcm:v1:",
            Algorithm::AesCbc => "k8s:enc:aescbc:v1:",
            Algorithm::Secretbox => "k8s:enc:secretbox:v1:",
        }
    }

    pub fn key_bytes(self) -> &'static [usize] {
        match self {
            Algorithm::AesGcm | Algorithm::AesCbc => &[16, 24, 32],
            Algorithm::Secretbox => &[32],
        }
    }

    /// `place` is where the value lies; AES-GCM binds it to that.
    pub fn seal(self, secret: &[u8], place: &str, plain: &[u8]) -> Result<Vec<u8>, CipherError> {
        match (self, secret.len()) {
            (Algorithm::AesGcm, 16) => seal_gcm::<AesGcm<Aes128, U12>>(secret, place, plain),
            (Algorithm::AesGcm, 24) => seal_gcm::<AesGcm<Aes192, U12>>(secret, place, plain),
            (Algorithm::AesGcm, _) => seal_gcm::<AesGcm<Aes256, U12>>(secret, place, plain),
            (Algorithm::AesCbc, 16) => seal_cbc::<cbc::Encryptor<Aes128>>(secret, plain),
            (Algorithm::AesCbc, 24) => seal_cbc::<cbc::Encryptor<Aes192>>(secret, plain),
            (Algorithm::AesCbc, _) => seal_cbc::<cbc::Encryptor<Aes256>>(secret, plain),
            (Algorithm::Secretbox, _) => seal_secretbox(secret, random()?, plain),
        }
    }

    pub fn open(self, secret: &[u8], place: &str, stored: &[u8]) -> Result<Vec<u8>, CipherError> {
        match (self, secret.len()) {
            (Algorithm::AesGcm, 16) => open_gcm::<AesGcm<Aes128, U12>>(secret, place, stored),
            (Algorithm::AesGcm, 24) => open_gcm::<AesGcm<Aes192, U12>>(secret, place, stored),
            (Algorithm::AesGcm, _) => open_gcm::<AesGcm<Aes256, U12>>(secret, place, stored),
            (Algorithm::AesCbc, 16) => open_cbc::<cbc::Decryptor<Aes128>>(secret, stored),
            (Algorithm::AesCbc, 24) => open_cbc::<cbc::Decryptor<Aes192>>(secret, stored),
            (Algorithm::AesCbc, _) => open_cbc::<cbc::Decryptor<Aes256>>(secret, stored),
            (Algorithm::Secretbox, _) => open_secretbox(secret, stored),
        }
    }
}

fn random<const N: usize>() -> Result<[u8; N], CipherError> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| CipherError::Random)?;
    Ok(bytes)
}

/// The nonce, the ciphertext, the tag.
fn seal_gcm<C: Aead<NonceSize = U12> + KeyInit>(
    secret: &[u8],
    place: &str,
    plain: &[u8],
) -> Result<Vec<u8>, CipherError> {
    let cipher = C::new_from_slice(secret).map_err(|_| CipherError::KeyLength)?;
    let nonce: [u8; GCM_NONCE_BYTES] = random()?;
    let payload = Payload {
        msg: plain,
        aad: place.as_bytes(),
    };
    let sealed = cipher.encrypt(&Nonce::from(nonce), payload);
    let sealed = sealed.map_err(|_| CipherError::Authentication)?;
    Ok([nonce.as_slice(), &sealed].concat())
}

fn open_gcm<C: Aead<NonceSize = U12> + KeyInit>(
    secret: &[u8],
    place: &str,
    stored: &[u8],
) -> Result<Vec<u8>, CipherError> {
    let cipher = C::new_from_slice(secret).map_err(|_| CipherError::KeyLength)?;
    let (nonce, sealed) = stored
        .split_first_chunk::<GCM_NONCE_BYTES>()
        .ok_or(CipherError::TooShort)?;
    let payload = Payload {
        msg: sealed,
        aad: place.as_bytes(),
    };
    let opened = cipher.decrypt(&Nonce::from(*nonce), payload);
    opened.map_err(|_| CipherError::Authentication)
}

/// The initialization vector, then the ciphertext, padded by PKCS #7.
fn seal_cbc<C: KeyIvInit + BlockModeEncrypt>(secret: &[u8], plain: &[u8]) -> Result<Vec<u8>, CipherError> {
    let vector: [u8; CBC_BLOCK_BYTES] = random()?;
    let cipher = C::new_from_slices(secret, &vector).map_err(|_| CipherError::KeyLength)?;
    let sealed = cipher.encrypt_padded_vec::<Pkcs7>(plain);
    Ok([vector.as_slice(), &sealed].concat())
}

fn open_cbc<C: KeyIvInit + BlockModeDecrypt>(secret: &[u8], stored: &[u8]) -> Result<Vec<u8>, CipherError> {
    let (vector, sealed) = stored
        .split_first_chunk::<CBC_BLOCK_BYTES>()
        .ok_or(CipherError::TooShort)?;
    if !sealed.len().is_multiple_of(CBC_BLOCK_BYTES) {
        return Err(CipherError::NotBlocks);
    }
    let cipher = C::new_from_slices(secret, vector).map_err(|_| CipherError::KeyLength)?;
    cipher
        .decrypt_padded_vec::<Pkcs7>(sealed)
        .map_err(|_| CipherError::Padding)
}

/// The nonce, the tag, the ciphertext: XSalsa20 and Poly1305 as NaCl's secretbox puts them together.
pub(super) fn seal_secretbox(
    secret: &[u8],
    nonce: [u8; SECRETBOX_NONCE_BYTES],
    plain: &[u8],
) -> Result<Vec<u8>, CipherError> {
    let mut buffer = [&[0; SECRETBOX_TAG_KEY_BYTES], plain].concat();
    let mut cipher = XSalsa20::new_from_slices(secret, &nonce).map_err(|_| CipherError::KeyLength)?;
    cipher.apply_keystream(&mut buffer);
    let (tag_key, sealed) = buffer.split_at(SECRETBOX_TAG_KEY_BYTES);
    Ok([nonce.as_slice(), &secretbox_tag(tag_key, sealed)?, sealed].concat())
}

fn open_secretbox(secret: &[u8], stored: &[u8]) -> Result<Vec<u8>, CipherError> {
    let (nonce, rest) = stored
        .split_first_chunk::<SECRETBOX_NONCE_BYTES>()
        .ok_or(CipherError::TooShort)?;
    let (tag, sealed) = rest
        .split_first_chunk::<SECRETBOX_TAG_BYTES>()
        .ok_or(CipherError::TooShort)?;
    let mut cipher = XSalsa20::new_from_slices(secret, nonce).map_err(|_| CipherError::KeyLength)?;
    let mut tag_key = [0; SECRETBOX_TAG_KEY_BYTES];
    cipher.apply_keystream(&mut tag_key);
    let expected = secretbox_tag(&tag_key, sealed)?;
    // Every byte is compared, wherever the first difference is.
    let difference = tag
        .iter()
        .zip(&expected)
        .fold(0, |all, (left, right)| all | (left ^ right));
    if difference != 0 {
        return Err(CipherError::Authentication);
    }
    let mut plain = sealed.to_vec();
    cipher.apply_keystream(&mut plain);
    Ok(plain)
}

fn secretbox_tag(key: &[u8], sealed: &[u8]) -> Result<[u8; SECRETBOX_TAG_BYTES], CipherError> {
    let hash =
        <Poly1305 as poly1305::universal_hash::KeyInit>::new_from_slice(key).map_err(|_| CipherError::KeyLength)?;
    Ok(hash.compute_unpadded(sealed).into())
}
