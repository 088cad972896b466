//go:build darwin || linux

package sqs_test

import (
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"

	"github.com/reprise-go/reprise/core"
	testserver "github.com/reprise-go/reprise/internal/testserver/sqs"
	"github.com/reprise-go/reprise/transport/sqs"
)

// A request that net/http takes for failed loses its connection, and with it an answer that is arriving.
func TestRequests_AreWrittenWithoutErrors(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	s.provisioned(t, sqs.Config{}, "billing")
	for name, client := range map[string]aws.HTTPClient{
		"without a client":            nil,
		"client of LoadDefaultConfig": awshttp.NewBuildableClient(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := configured(sqs.Config{}, s.URL())
			cfg.AWS.HTTPClient = client
			transport := openConfigured(t, cfg)
			var written, failed atomic.Int64
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{WroteRequest: func(info httptrace.WroteRequestInfo) {
				written.Add(1)
				if info.Err != nil {
					failed.Add(1)
				}
			}})
			var callers sync.WaitGroup
			for range 8 {
				callers.Go(func() {
					for range 100 {
						if err := transport.Check(ctx, core.Topology{InputQueue: "billing", Queues: []string{"billing"}}); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			callers.Wait()
			if n := failed.Load(); n > 0 || written.Load() < 800 {
				t.Errorf("%d of %d requests were not written wholly", n, written.Load())
			}
		})
	}
}
