//go:build darwin || linux

package sqs_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	testserver "github.com/reprise-go/reprise/internal/testserver/sqs"
	"github.com/reprise-go/reprise/transport/sqs"
)

// The service deletes no queue by itself, and nothing is created that would stay for ever.
func TestQueueExpiry_IsRefused(t *testing.T) {
	t.Parallel()
	transport := startSite(t, testserver.Config{}).open(t, sqs.Config{})
	topology := core.Topology{InputQueue: "replies-pod-0", Queues: []string{"replies-pod-0", "error"}, QueueExpiry: time.Hour}
	for operation, err := range map[string]error{"Provision": transport.Provision(t.Context(), topology), "Check": transport.Check(t.Context(), topology)} {
		if err == nil || !strings.Contains(err.Error(), `Config.QueueExpiry of the endpoint is 1h0m0s, but SQS deletes no queue by itself; remove it, and delete the queue "replies-pod-0"`) ||
			errors.Is(err, errors.ErrUnsupported) || errors.Is(err, core.ErrUnavailable) {
			t.Errorf("%s: %v", operation, err)
		}
	}
	if err := transport.Check(t.Context(), core.Topology{Queues: []string{"error"}}); !errors.Is(err, core.ErrQueueNotFound) {
		t.Errorf("Check of a queue that was not created: %v", err)
	}
}
