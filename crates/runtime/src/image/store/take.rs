//! Taking images in: from an archive, or as fetched from a registry.

use std::fs::{self, File};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::fs::RenameFlags;

use super::super::archive::{self, PackedImage, PackedLayer};
use super::super::builtin;
use super::super::digest::Digest;
use super::super::layer::Bounds;
use super::super::limits::MAX_LAYER_BYTES;
use super::super::records::{Image, file_name};
use super::super::reference::Reference;
use super::super::room::Room;
use super::super::unpacker::Unpacker;
use super::super::work::WorkDir;
use super::{ImageError, ImageStore, at, chains, short_name};

/// An image of an archive.
#[derive(Debug)]
pub struct Imported {
    /// What the archive calls it. It may have had other names before.
    pub names: Vec<String>,
    pub image: Arc<Image>,
}

impl ImageStore {
    /// Imports every image of an archive and answers them.
    pub fn import(&self, archive: &File) -> Result<Vec<Imported>, ImageError> {
        self.check_room(archive.metadata().map_err(at(&self.dir))?.len())?;
        let work = self.work_dir()?;
        let spool = work.make("spool").map_err(at(work.path()))?;
        let room = Room::on(&self.layers).map_err(at(&self.dir))?;
        let mut unpacker = self.launcher.start().map_err(ImageError::Spool)?;
        unpacker
            .spool(archive, spool.as_fd(), MAX_LAYER_BYTES.min(room.bytes))
            .map_err(ImageError::Spool)?;
        drop(unpacker);
        let mut imported = Vec::new();
        archive::images(spool.as_fd(), &mut |image| {
            let names = image.names.iter().filter_map(|name| Reference::parse(name).ok());
            let names = names.map(|name| name.key()).collect();
            let image = self.take(image)?;
            imported.push(Imported { names, image });
            Ok::<_, ImageError>(())
        })?;
        Ok(imported)
    }

    /// Takes in an image whose layers are packed. Nothing of it stays if it is not what it says.
    pub fn take(&self, packed: PackedImage) -> Result<Arc<Image>, ImageError> {
        packed.config.check_layer_count(packed.layers.len())?;
        let names = packed
            .names
            .iter()
            .map(|name| Reference::parse(name))
            .collect::<Result<Vec<_>, _>>()?;
        if let Some(reserved) = names.iter().find(|name| name.key() == builtin::TAG) {
            return Err(ImageError::ReservedName(reserved.to_string()));
        }
        let chain: Vec<_> = chains(&packed.config);
        let short: Vec<_> = chain.iter().map(short_name).collect();
        self.hold(&short);
        let taken = self.take_held(&packed, &names, &chain);
        self.release(&short);
        if taken.is_err() {
            let _changing = self.changing.lock();
            self.sweep_layers()?;
        }
        taken
    }

    fn take_held(&self, packed: &PackedImage, names: &[Reference], chain: &[Digest]) -> Result<Arc<Image>, ImageError> {
        let work = self.work_dir()?;
        let new = self.unpack_layers(packed, chain, &work)?;
        if !new.is_empty() {
            // Layers must not turn out torn after a crash that their record survived.
            rustix::fs::syncfs(&self.layers).map_err(|error| at(&self.dir)(error.into()))?;
        }
        let _changing = self.changing.lock();
        for layer in &new {
            self.keep_layer(layer, &work)?;
        }
        let layers: Vec<_> = chain.iter().map(short_name).collect();
        let size = chain
            .iter()
            .map(|chain| self.layer_size(chain))
            .sum::<Result<u64, _>>()?;
        let digests = packed
            .manifest_digest
            .iter()
            .flat_map(|digest| names.iter().map(move |name| format!("{}@{digest}", name.repository)));
        let image = Image {
            id: packed.id.to_string(),
            tags: names
                .iter()
                .filter(|name| name.digest.is_none())
                .map(Reference::key)
                .collect(),
            digests: digests.collect(),
            size,
            layers,
            config: packed.config.config.clone(),
            pinned: false,
        };
        let config = self.dir.join("configs").join(file_name(&image.id));
        fs::write(&config, &packed.config_bytes).map_err(at(&config))?;
        self.put_changing(image)
    }

    /// Unpacks the layers that no other image has brought already.
    fn unpack_layers(
        &self,
        packed: &PackedImage,
        chain: &[Digest],
        work: &WorkDir,
    ) -> Result<Vec<NewLayer>, ImageError> {
        let (mut unpacker, mut new) = (None, Vec::new());
        let diff_ids = &packed.config.rootfs.diff_ids;
        for (index, ((layer, diff_id), chain)) in packed.layers.iter().zip(diff_ids).zip(chain).enumerate() {
            let failed = |source| ImageError::Layer {
                digest: diff_id.clone(),
                source,
            };
            let name = short_name(chain);
            if self.has_layer(&name) {
                self.layer_size(chain)?;
                // Only where another image brings the same layers at this moment.
                if let Some(unpacker) = &mut unpacker {
                    let below = self.open_layer(&name)?;
                    Unpacker::add_below(unpacker, below.as_fd()).map_err(failed)?;
                }
                continue;
            }
            let Some(layer) = layer else {
                return Err(ImageError::LayerGone(diff_id.clone()));
            };
            if unpacker.is_none() {
                let mut started = self.launcher.start().map_err(failed)?;
                // All before the first that is missing are here.
                for below in &chains(&packed.config)[..index] {
                    let below = self.open_layer(&short_name(below))?;
                    started.add_below(below.as_fd()).map_err(failed)?;
                }
                unpacker = Some(started);
            }
            let Some(unpacker) = &mut unpacker else { continue };
            let dir = work.make(&name).map_err(at(work.path()))?;
            let size = self.unpack_layer(unpacker, layer, dir.as_fd(), diff_id)?;
            new.push(NewLayer {
                name,
                chain: chain.clone(),
                size,
            });
        }
        Ok(new)
    }

    /// Unpacks one layer, holds it to its digests and answers its size.
    fn unpack_layer(
        &self,
        unpacker: &mut Unpacker,
        layer: &PackedLayer,
        dir: BorrowedFd<'_>,
        diff_id: &Digest,
    ) -> Result<u64, ImageError> {
        let bounds = Bounds::within(Room::on(&self.layers).map_err(at(&self.dir))?);
        let unpacked = unpacker
            .unpack(&layer.file, dir, bounds, layer.unverified.is_some())
            .map_err(|source| ImageError::Layer {
                digest: diff_id.clone(),
                source,
            })?;
        hold_to("the layer's blob", layer.unverified.as_ref(), unpacked.blob)?;
        hold_to("the layer", Some(diff_id), Some(unpacked.content))?;
        Ok(unpacked.bytes)
    }

    /// Puts an unpacked layer where those of all images are.
    fn keep_layer(&self, layer: &NewLayer, work: &WorkDir) -> Result<(), ImageError> {
        let path = self.layer_dir(&layer.name);
        let size_file = self.size_file(&layer.name);
        if !self.has_layer(&layer.name) {
            let text = format!("{} {}\n", layer.size, layer.chain);
            fs::write(&size_file, text).map_err(at(&size_file))?;
        }
        let from = work.path().join(&layer.name);
        let flags = RenameFlags::NOREPLACE;
        match rustix::fs::renameat_with(rustix::fs::CWD, &from, &self.layers, &layer.name, flags) {
            // Another image has brought it meanwhile.
            Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
            Err(error) => Err(at(&path)(error.into())),
        }
    }
}

/// A layer that is unpacked and verified, but not yet where containers find it.
struct NewLayer {
    name: String,
    chain: Digest,
    size: u64,
}

fn hold_to(what: &'static str, expected: Option<&Digest>, actual: Option<Digest>) -> Result<(), ImageError> {
    match (expected, actual) {
        (Some(expected), Some(actual)) if *expected != actual => Err(ImageError::Corrupt {
            what,
            expected: expected.clone(),
            actual,
        }),
        (Some(expected), None) => Err(ImageError::LayerGone(expected.clone())),
        _ => Ok(()),
    }
}
