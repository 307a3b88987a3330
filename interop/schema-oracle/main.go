// Command schema-oracle answers, with upstream's own code, the questions that Karve's schema engine answers: one JSON request
// per line on standard input, one JSON answer per line on standard output. Tests compare the two.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apidiscoveryv2beta1 "k8s.io/api/apidiscovery/v2beta1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	jsonserializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	"sigs.k8s.io/yaml"
)

type request struct {
	Op         string `json:"op"`
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// The object, document or quantity.
	Input []byte `json:"input"`
	Patch []byte `json:"patch"`
}

type answer struct {
	Output   []byte   `json:"output,omitempty"`
	Problems []string `json:"problems,omitempty"`
	Error    string   `json:"error,omitempty"`
}

func main() {
	known := scheme.Scheme
	for _, add := range []func(*runtime.Scheme) error{
		admissionv1.AddToScheme, apidiscoveryv2.AddToScheme, apidiscoveryv2beta1.AddToScheme,
		apiextensionsv1.AddToScheme, apiregistrationv1.AddToScheme, metricsv1beta1.AddToScheme, metav1.AddMetaToScheme,
	} {
		if err := add(known); err != nil {
			panic(err)
		}
	}
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := bufio.NewWriter(os.Stdout)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var asked request
		if err := json.Unmarshal(line, &asked); err != nil {
			panic(err)
		}
		encoded, err := json.Marshal(reply(known, asked))
		if err != nil {
			panic(err)
		}
		out.Write(encoded)
		out.WriteByte('\n')
		out.Flush()
	}
}

func reply(known *runtime.Scheme, asked request) (result answer) {
	defer func() {
		if recovered := recover(); recovered != nil {
			result = answer{Error: fmt.Sprintf("panic: %v", recovered)}
		}
	}()
	output, problems, err := run(known, asked)
	result = answer{Output: output, Problems: problems}
	if err != nil {
		result = answer{Error: err.Error()}
	}
	return result
}

func run(known *runtime.Scheme, asked request) ([]byte, []string, error) {
	switch asked.Op {
	case "quantity":
		quantity, err := resource.ParseQuantity(string(asked.Input))
		return []byte(quantity.String()), nil, err
	case "yaml":
		output, err := yaml.YAMLToJSON(asked.Input)
		return output, nil, err
	case "json-patch":
		patch, err := jsonpatch.DecodePatch(asked.Patch)
		if err != nil {
			return nil, nil, err
		}
		output, err := patch.Apply(asked.Input)
		return output, nil, err
	case "merge-patch":
		output, err := jsonpatch.MergePatch(asked.Input, asked.Patch)
		return output, nil, err
	}
	kind := schema.FromAPIVersionAndKind(asked.APIVersion, asked.Kind)
	object, err := known.New(kind)
	if err != nil {
		return nil, nil, err
	}
	switch asked.Op {
	case "decode":
		return decode(known, kind, object, asked.Input, false)
	case "decode-yaml":
		return decode(known, kind, object, asked.Input, true)
	case "to-protobuf":
		if err := utiljson.Unmarshal(asked.Input, object); err != nil {
			return nil, nil, err
		}
		object.GetObjectKind().SetGroupVersionKind(kind)
		var buffer bytes.Buffer
		err := protobuf.NewSerializer(known, known).Encode(object, &buffer)
		return buffer.Bytes(), nil, err
	case "from-protobuf":
		decoded, _, err := protobuf.NewSerializer(known, known).Decode(asked.Input, &kind, nil)
		if err != nil {
			return nil, nil, err
		}
		output, err := json.Marshal(decoded)
		return output, nil, err
	case "strategic-merge-patch":
		output, err := strategicpatch.StrategicMergePatch(asked.Input, asked.Patch, object)
		return output, nil, err
	}
	return nil, nil, fmt.Errorf("unknown operation %q", asked.Op)
}

func decode(known *runtime.Scheme, kind schema.GroupVersionKind, object runtime.Object, input []byte, isYAML bool) ([]byte, []string, error) {
	serializer := jsonserializer.NewSerializerWithOptions(jsonserializer.DefaultMetaFactory, known, known,
		jsonserializer.SerializerOptions{Yaml: isYAML, Strict: true})
	decoded, _, err := serializer.Decode(input, &kind, object)
	var problems []string
	if strict, ok := runtime.AsStrictDecodingError(err); ok {
		for _, problem := range strict.Errors() {
			problems = append(problems, problem.Error())
		}
	} else if err != nil {
		return nil, nil, err
	}
	output, err := json.Marshal(decoded)
	return output, problems, err
}
