// Command pod-security says, with upstream's own code, what the pod security standards of every version find in the pods
// of a directory: one JSON line per different pod on standard output. A test compares Karve's findings with them.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

// The newest minor version of which there are standards.
const newest = 36

type judged struct {
	File string          `json:"file"`
	Pod  json.RawMessage `json:"pod"`
	// What is forbidden, by standard; standards that allow the pod are left out.
	Forbidden map[string]string `json:"forbidden"`
}

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "pod-security:", err)
		os.Exit(1)
	}
}

func run(dir string) error {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	seen := map[string]bool{}
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".yaml") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		relative, _ := filepath.Rel(dir, path)
		for name, change := range variants {
			raw, err := changed(text, change)
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			if seen[string(raw)] {
				continue
			}
			seen[string(raw)] = true
			var pod corev1.Pod
			if err := yaml.UnmarshalStrict(raw, &pod); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			if err := json.NewEncoder(out).Encode(judged{relative + name, raw, judge(evaluator, &pod)}); err != nil {
				return err
			}
		}
		return nil
	})
}

// What is done to each pod besides taking it as it is: ways that lead around a standard.
var variants = map[string]func(spec map[string]any){
	"":                      func(map[string]any) {},
	" for Windows":          func(spec map[string]any) { spec["os"] = map[string]any{"name": "windows"} },
	" without host users":   func(spec map[string]any) { spec["hostUsers"] = false },
	" as ephemeral":         becomeEphemeral,
	" without a pod's part": func(spec map[string]any) { delete(spec, "securityContext") },
}

func becomeEphemeral(spec map[string]any) {
	spec["ephemeralContainers"] = spec["containers"]
	spec["containers"] = []any{map[string]any{"name": "plain"}}
}

func changed(text []byte, change func(spec map[string]any)) ([]byte, error) {
	var pod map[string]any
	if err := yaml.Unmarshal(text, &pod); err != nil {
		return nil, err
	}
	if spec, ok := pod["spec"].(map[string]any); ok {
		change(spec)
	}
	return json.Marshal(pod)
}

func judge(evaluator policy.Evaluator, pod *corev1.Pod) map[string]string {
	forbidden := map[string]string{}
	versions := []api.Version{api.LatestVersion()}
	for minor := 0; minor <= newest; minor++ {
		versions = append(versions, api.MajorMinorVersion(1, minor))
	}
	for _, level := range []api.Level{api.LevelBaseline, api.LevelRestricted} {
		for _, version := range versions {
			standard := api.LevelVersion{Level: level, Version: version}
			result := policy.AggregateCheckResults(evaluator.EvaluatePod(standard, &pod.ObjectMeta, &pod.Spec))
			if !result.Allowed {
				forbidden[standard.String()] = result.ForbiddenDetail()
			}
		}
	}
	return forbidden
}
