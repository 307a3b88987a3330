// Package interop pins Kubernetes' own components and test suite, so that go.mod and go.sum name every
// module they are built from. It holds no code of its own and no copy of upstream's.
package interop

import (
	_ "k8s.io/kubernetes/test/e2e"
)
