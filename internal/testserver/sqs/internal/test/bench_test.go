//go:build darwin || linux

package sqs_test

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	server "github.com/reprise-go/reprise/internal/testserver/sqs"
)

// BenchmarkBatches sends, receives and deletes batches of 10 messages of 1 KiB, with
// several clients. The SDK runs on the same machine, and takes most of its time.
func BenchmarkBatches(b *testing.B) {
	for _, durable := range []bool{false, true} {
		b.Run(fmt.Sprintf("durable=%t", durable), func(b *testing.B) {
			var cfg server.Config
			if durable {
				cfg.File = filepath.Join(b.TempDir(), "journal")
			}
			s := server.StartFor(b, cfg)
			transport := &http.Transport{MaxIdleConnsPerHost: 64}
			b.Cleanup(transport.CloseIdleConnections)
			client := newSQS(s.URL(), transport)
			if _, err := client.CreateQueue(b.Context(), &sqs.CreateQueueInput{QueueName: new("q")}); err != nil {
				b.Fatal(err)
			}
			url := s.QueueURL("q")
			body := strings.Repeat("x", 1024)
			b.SetParallelism(4)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := roundTrip(b.Context(), client, url, body); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(b.N)*10/b.Elapsed().Seconds(), "messages/s")
		})
	}
}

// roundTrip sends a batch, and receives and deletes one.
func roundTrip(ctx context.Context, client *sqs.Client, url, body string) error {
	var send []types.SendMessageBatchRequestEntry
	for i := range 10 {
		send = append(send, types.SendMessageBatchRequestEntry{Id: new(fmt.Sprint(i)), MessageBody: &body})
	}
	if _, err := client.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: &url, Entries: send}); err != nil {
		return err
	}
	got, err := client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: &url, MaxNumberOfMessages: 10, WaitTimeSeconds: 20})
	if err != nil {
		return err
	}
	var remove []types.DeleteMessageBatchRequestEntry
	for i, m := range got.Messages {
		remove = append(remove, types.DeleteMessageBatchRequestEntry{Id: new(fmt.Sprint(i)), ReceiptHandle: m.ReceiptHandle})
	}
	_, err = client.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: &url, Entries: remove})
	return err
}
