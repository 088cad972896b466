//go:build darwin || linux

package sqs_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/reprise-go/reprise/core"
	testserver "github.com/reprise-go/reprise/internal/testserver/sqs"
	"github.com/reprise-go/reprise/transport/sqs"
)

// WriteInvoice is a command.
type WriteInvoice struct{ OrderID int }

// An endpoint that sends itself a message, and handles it.
func Example() {
	// snippet: first
	ctx, stop := context.WithCancel(context.Background())
	transport, err := sqs.Open() // region and credentials as the AWS SDK finds them
	if err != nil {
		log.Fatal(err)
	}
	defer transport.Close(context.Background())

	writeInvoice := core.NewMessageType[WriteInvoice]("billing.WriteInvoice") // its name on the wire
	billing, err := core.New("billing", transport, core.Config{})
	if err != nil {
		log.Fatal(err)
	}
	core.Handle(billing, writeInvoice, func(ctx context.Context, _ *core.Message, body WriteInvoice) error {
		fmt.Println("an invoice for order", body.OrderID)
		stop() // Run drains and returns; a service runs until it gets a signal
		return nil
	})
	if err := errors.Join(
		billing.Provision(ctx), // creates billing, billing-delay.fifo and error if they are missing
		billing.Send(ctx, "billing", writeInvoice.Of(WriteInvoice{OrderID: 42})),
		billing.Run(ctx),
	); err != nil {
		log.Fatal(err)
	}
	// end
}

// Several environments in one account.
func ExampleNew() {
	ctx := context.Background()
	// snippet: new
	shared, err := config.LoadDefaultConfig(ctx, config.WithRegion("eu-central-1"), config.WithSharedConfigProfile("shop"))
	if err != nil {
		log.Fatal(err)
	}
	transport, err := sqs.New(sqs.Config{
		AWS:         &shared,
		QueuePrefix: "staging-",
		TopicPrefix: "staging-",
		KMSKey:      "alias/messages", // of the queues that Provision creates
	})
	// end
	if err != nil {
		log.Fatal(err)
	}
	_ = transport.Close(ctx)
}

// The messages of one customer are handled in their order.
func ExampleTransport_KeepsGroups() {
	transport, err := sqs.New(sqs.Config{AWS: &aws.Config{Region: "eu-central-1"}})
	if err != nil {
		log.Fatal(err)
	}
	// snippet: fifo
	ledger, err := core.New("ledger.fifo", transport, core.Config{
		Recoverability: core.Recoverability{ErrorQueue: "error"},
	})
	if err != nil {
		log.Fatal(err)
	}
	post := func(ctx context.Context, customer string, amount int) error {
		return ledger.Send(ctx, "ledger.fifo", postType.Of(amount).With(core.SendOptions{GroupKey: customer}))
	}
	// end
	_ = post
	fmt.Println(transport.KeepsGroups("ledger.fifo"), transport.KeepsGroups("ledger"))
	// Output: true false
}

// A message that SQS drops if the same one was sent within five minutes.
func ExampleTransport_Send() {
	ctx := context.Background()
	transport, err := sqs.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer transport.Close(ctx)
	bank, err := core.New("bank", transport, core.Config{SendOnly: true})
	if err != nil {
		log.Fatal(err)
	}
	// snippet: deduplication
	err = bank.Send(ctx, "ledger.fifo", postType.Of(100).With(core.SendOptions{
		GroupKey: "customer-7",
		Properties: map[string]string{
			sqs.PropertyDeduplicationID: "payment-4711", // of the bank statement
		},
	}))
	// end
	if send, ok := errors.AsType[*core.SendError](err); ok {
		for _, result := range send.Results {
			fmt.Println(result.State, result.Err)
		}
	}
}

// Messages of a publisher that knows nothing of Reprise.
func ExampleConfig_messageType() {
	ctx := context.Background()
	// snippet: foreign
	transport, err := sqs.New(sqs.Config{
		MessageType: func(queue string, m *types.Message) string {
			if queue == "uploads" { // to which a bucket of S3 sends its events
				return "uploads.S3Event"
			}
			return ""
		},
	})
	// end
	if err != nil {
		log.Fatal(err)
	}
	_ = transport.Close(ctx)
}

// The least rights of an endpoint.
func ExamplePolicy() {
	// snippet: policy
	policy, err := sqs.Policy(sqs.Config{NoLongDelays: true}, sqs.PolicyFor{
		Region: "eu-central-1", Account: "123456789012",
		Receives:  []string{"billing"},
		Sends:     []string{"shipping", "error"},
		Publishes: []string{"billing.Invoiced"},
	})
	// end
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(policy) > 0)
	// Output: true
}

// TestExamples runs the examples that need a server, and looks at what they leave on it.
func TestExamples(t *testing.T) {
	for name, example := range map[string]struct {
		run          func()
		queue        string
		sent, remain int
	}{
		"Example":        {Example, "billing", 1, 0},
		"New":            {ExampleNew, "billing", 0, 0},
		"Transport_Send": {ExampleTransport_Send, "ledger.fifo", 1, 1},
		"messageType":    {ExampleConfig_messageType, "billing", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := startSite(t, testserver.Config{})
			s.provisioned(t, sqs.Config{}, example.queue)
			profile := filepath.Join(t.TempDir(), "config")
			if err := os.WriteFile(profile, []byte("[profile shop]\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			for variable, value := range map[string]string{
				"AWS_ENDPOINT_URL": s.URL(), "AWS_REGION": "us-east-1", "AWS_CONFIG_FILE": profile,
				"AWS_ACCESS_KEY_ID": accessKey, "AWS_SECRET_ACCESS_KEY": secretKey,
			} {
				t.Setenv(variable, value)
			}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				example.run()
			}()
			for running := true; running; {
				select {
				case <-ended:
					running = false
				case <-time.After(100 * time.Millisecond): // so that a lock of 30 s lasts for 3 s
					s.Advance(time.Second) // the last request for messages ends after 20 s
				}
			}
			if n := len(s.contents(t, example.queue).Ready); n != example.remain {
				t.Errorf("it left %d messages in %s, want %d", n, example.queue, example.remain)
			}
			if n := s.Requests(example.queue)["SendMessageBatch"]; n != example.sent {
				t.Errorf("it made %d requests to send to %s, want %d", n, example.queue, example.sent)
			}
		})
	}
}
