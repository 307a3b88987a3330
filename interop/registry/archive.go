package main

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

const (
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar"
)

// content is every image of the archives, by name and by digest.
type content struct {
	tags  map[string]string // "repository:tag" without the registry's host → manifest digest
	blobs map[string]blob   // digest → bytes
}

// blob is a part of a file, so that no layer is held in memory.
type blob struct {
	mediaType string
	file      io.ReaderAt
	offset    int64
	size      int64
}

type descriptor struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Size      int64  `json:"size"`
}

type manifest struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Config        descriptor   `json:"config"`
	Layers        []descriptor `json:"layers"`
}

// add reads the layout of `docker save`, as images.sh writes it.
func (c *content) add(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	parts, err := index(file)
	if err != nil {
		return err
	}
	listed, ok := parts["manifest.json"]
	if !ok {
		return errors.New("no manifest.json in it")
	}
	var images []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if err := json.NewDecoder(listed.reader()).Decode(&images); err != nil {
		return fmt.Errorf("manifest.json: %w", err)
	}
	for _, image := range images {
		made := manifest{SchemaVersion: 2, MediaType: manifestType}
		if made.Config, err = c.addPart(parts, image.Config, configType); err != nil {
			return err
		}
		for _, layer := range image.Layers {
			described, err := c.addPart(parts, layer, layerType)
			if err != nil {
				return err
			}
			made.Layers = append(made.Layers, described)
		}
		encoded, err := json.Marshal(made)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(encoded)
		digest := "sha256:" + hex.EncodeToString(sum[:])
		c.blobs[digest] = blob{manifestType, strings.NewReader(string(encoded)), 0, int64(len(encoded))}
		for _, name := range image.RepoTags {
			c.tags[name[strings.Index(name, "/")+1:]] = digest
		}
	}
	return nil
}

func (c *content) addPart(parts map[string]blob, name, mediaType string) (descriptor, error) {
	part, ok := parts[name]
	if !ok {
		return descriptor{}, fmt.Errorf("manifest.json names %s, which is not in the archive", name)
	}
	part.mediaType = mediaType
	hash := sha256.New()
	if _, err := io.Copy(hash, part.reader()); err != nil {
		return descriptor{}, err
	}
	digest := "sha256:" + hex.EncodeToString(hash.Sum(nil))
	c.blobs[digest] = part
	return descriptor{mediaType, digest, part.size}, nil
}

func (b blob) reader() *io.SectionReader {
	return io.NewSectionReader(b.file, b.offset, b.size)
}

// index finds where each file of a tar lies. The tar reader consumes whole headers and no more, so that after Next the
// file's own position is the start of the data.
func index(file *os.File) (map[string]blob, error) {
	parts := map[string]blob{}
	archive := tar.NewReader(file)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return parts, nil
		}
		if err != nil {
			return nil, err
		}
		offset, err := file.Seek(0, io.SeekCurrent)
		if err != nil {
			return nil, err
		}
		parts[header.Name] = blob{file: file, offset: offset, size: header.Size}
	}
}
