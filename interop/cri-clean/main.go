// Command cri-clean stops and removes every pod sandbox of a container runtime, so that the runtime itself takes back
// what it gave out: processes, mounts, network namespaces and addresses. It takes the path of the CRI socket.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// limit is for all sandboxes together; a runtime that takes longer is stuck, and its caller goes on without it.
const limit = 60 * time.Second

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: cri-clean SOCKET")
		os.Exit(2)
	}
	if err := clean(os.Args[1]); err != nil {
		fmt.Fprintf(os.Stderr, "cri-clean: %v\n", err)
		os.Exit(1)
	}
}

func clean(socket string) error {
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	client := runtime.NewRuntimeServiceClient(connection)
	pods, err := client.ListPodSandbox(ctx, &runtime.ListPodSandboxRequest{})
	if err != nil {
		return fmt.Errorf("list sandboxes: %w", err)
	}
	var failed error
	for _, pod := range pods.Items {
		if _, err := client.StopPodSandbox(ctx, &runtime.StopPodSandboxRequest{PodSandboxId: pod.Id}); err != nil {
			failed = fmt.Errorf("stop sandbox of %s/%s: %w", pod.Metadata.Namespace, pod.Metadata.Name, err)
			continue
		}
		if _, err := client.RemovePodSandbox(ctx, &runtime.RemovePodSandboxRequest{PodSandboxId: pod.Id}); err != nil {
			failed = fmt.Errorf("remove sandbox of %s/%s: %w", pod.Metadata.Namespace, pod.Metadata.Name, err)
		}
	}
	return failed
}
