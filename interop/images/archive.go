package main

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

// An Image is one name, its layers from the lowest up, and how it starts.
type Image struct {
	Name       string
	Layers     []Tree
	Entrypoint []string
	Cmd        []string
}

// searchPath is set in every image, as upstream's have it from their base images.
const searchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

type manifestEntry struct {
	Config   string
	RepoTags []string
	Layers   []string
}

type imageConfig struct {
	Created      time.Time `json:"created"`
	Architecture string    `json:"architecture"`
	OS           string    `json:"os"`
	Config       runConfig `json:"config"`
	RootFS       rootFS    `json:"rootfs"`
	History      []history `json:"history"`
}

type runConfig struct {
	Env        []string          `json:"Env,omitempty"`
	Entrypoint []string          `json:"Entrypoint,omitempty"`
	Cmd        []string          `json:"Cmd,omitempty"`
	Labels     map[string]string `json:"Labels,omitempty"`
}

type rootFS struct {
	Type    string   `json:"type"`
	DiffIDs []string `json:"diff_ids"`
}

type history struct {
	CreatedBy string `json:"created_by"`
}

// writeArchive writes images in the layout of `docker save`: manifest.json, a config per image, and every layer once.
func writeArchive(to string, images []Image) error {
	work, err := os.MkdirTemp(filepath.Dir(to), ".images-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	partial, err := os.Create(filepath.Join(work, "archive.tar"))
	if err != nil {
		return err
	}
	defer partial.Close()
	archive := tar.NewWriter(partial)
	written := map[string]bool{}
	var manifest []manifestEntry
	for _, image := range images {
		entry, err := addImage(archive, written, work, image)
		if err != nil {
			return fmt.Errorf("%s: %w", image.Name, err)
		}
		manifest = append(manifest, entry)
	}
	encoded, err := json.Marshal(manifest)
	if err != nil {
		return err
	}
	if err := addBytes(archive, "manifest.json", encoded); err != nil {
		return err
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return os.Rename(partial.Name(), to)
}

func addImage(archive *tar.Writer, written map[string]bool, work string, image Image) (manifestEntry, error) {
	entry := manifestEntry{RepoTags: []string{image.Name}}
	config := imageConfig{
		Created:      time.Unix(0, 0).UTC(),
		Architecture: runtime.GOARCH,
		OS:           "linux",
		Config: runConfig{
			Env:        []string{searchPath},
			Entrypoint: image.Entrypoint,
			Cmd:        image.Cmd,
			// The name in the config gives images with equal content, such as two versions of agnhost, their own IDs.
			Labels: map[string]string{"interop.image": image.Name},
		},
		RootFS: rootFS{Type: "layers"},
	}
	for number, tree := range image.Layers {
		digest, err := addLayer(archive, written, work, tree)
		if err != nil {
			return entry, err
		}
		entry.Layers = append(entry.Layers, digest+".tar")
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, "sha256:"+digest)
		config.History = append(config.History, history{CreatedBy: fmt.Sprintf("interop/images layer %d", number)})
	}
	encoded, err := json.Marshal(config)
	if err != nil {
		return entry, err
	}
	sum := sha256.Sum256(encoded)
	entry.Config = hex.EncodeToString(sum[:]) + ".json"
	return entry, addBytes(archive, entry.Config, encoded)
}

// addLayer goes through a file because the digest, which names the layer, is known only at its end.
func addLayer(archive *tar.Writer, written map[string]bool, work string, tree Tree) (string, error) {
	file, err := os.CreateTemp(work, "layer-")
	if err != nil {
		return "", err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	hash := sha256.New()
	if err := tree.Write(io.MultiWriter(file, hash)); err != nil {
		return "", err
	}
	digest := hex.EncodeToString(hash.Sum(nil))
	if written[digest] {
		return digest, nil
	}
	written[digest] = true
	size, err := file.Seek(0, io.SeekCurrent)
	if err != nil {
		return "", err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	if err := archive.WriteHeader(header(digest+".tar", size)); err != nil {
		return "", err
	}
	_, err = io.Copy(archive, file)
	return digest, err
}

func addBytes(archive *tar.Writer, name string, content []byte) error {
	if err := archive.WriteHeader(header(name, int64(len(content)))); err != nil {
		return err
	}
	_, err := archive.Write(content)
	return err
}

func header(name string, size int64) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644, ModTime: time.Unix(0, 0)}
}
