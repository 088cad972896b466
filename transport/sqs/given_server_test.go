//go:build darwin || linux

package sqs_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	awssns "github.com/aws/aws-sdk-go-v2/service/sns"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"

	"github.com/reprise-go/reprise/conformance"
	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/given"
	"github.com/reprise-go/reprise/internal/testserver/proxy"
	"github.com/reprise-go/reprise/transport/sqs"
)

// The tests TestConformance... run on the service that the environment names, instead of a
// server of their own: on AWS, with the credentials that the SDK finds, or on an emulator. All
// that they make there has a name that begins with that of the run, and is deleted at their
// end.
const (
	// givenVariable names the region.
	givenVariable = "REPRISE_TEST_SQS_REGION"
	// endpointVariable names the URL of an emulator, or of an endpoint of AWS. Without it
	// requests go to the region's own.
	endpointVariable = "REPRISE_TEST_SQS_ENDPOINT"
)

// onGiven ends the names of harnesses on the given service, which run fewer cases and have
// separate reports.
const onGiven = ", given server"

// givenService is the service that the environment names, and the prefix of a run on it.
type givenService struct {
	shared  aws.Config
	secrets []string
	run     string // begins the names of the run's queues and topics
	about   string // the service, for people
	events  bool   // it has SNS
	cleaner *given.Cleaner
	tests   atomic.Int64
}

func isGiven() bool { return os.Getenv(givenVariable) != "" }

// givenSQS returns the service that the environment names, after a check that the
// suite can run on it.
var givenSQS = sync.OnceValues(func() (*givenService, error) {
	s, err := openGiven(context.Background())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", givenVariable, err)
	}
	return s, nil
})

// openedGiven is the service from the moment on from which something may be made.
var openedGiven atomic.Pointer[givenService]

// leaveGiven removes the queues and topics of the run. It ends the process if something is left.
func leaveGiven() {
	s := openedGiven.Load()
	if s == nil {
		return // nothing was made
	}
	if err := s.cleaner.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("%s: all that the run has made on %s is removed\n", givenVariable, s.about)
}

// loadGiven returns the SDK's configuration of the given service.
func loadGiven(ctx context.Context) (aws.Config, error) {
	shared, err := config.LoadDefaultConfig(ctx, config.WithRegion(os.Getenv(givenVariable)))
	if err != nil {
		return aws.Config{}, err
	}
	if endpoint := os.Getenv(endpointVariable); endpoint != "" {
		shared.BaseEndpoint = &endpoint
	}
	return shared, nil
}

// openGiven finds the service, starts the process that cleans up, and tries the rights that
// the suite needs. No error has a key.
func openGiven(ctx context.Context) (*givenService, error) {
	shared, err := loadGiven(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	keys, err := shared.Credentials.Retrieve(ctx)
	if err != nil {
		return nil, fmt.Errorf("the SDK finds no credentials: %w; to fix: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; an emulator takes any", err)
	}
	var id [4]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, err
	}
	s := &givenService{shared: shared, events: true, run: given.Prefix + hex.EncodeToString(id[:])}
	for _, secret := range []string{keys.SecretAccessKey, keys.SessionToken} {
		if len(secret) >= minSecret {
			s.secrets = append(s.secrets, secret)
		}
	}
	if _, err := awssqs.NewFromConfig(shared).ListQueues(ctx, &awssqs.ListQueuesInput{QueueNamePrefix: &s.run}); err != nil {
		return nil, fmt.Errorf("list queues: %w; to fix: check the credentials, and %s if it is set; allow sqs:ListQueues", err, endpointVariable)
	}
	s.about = "SQS in " + shared.Region
	if shared.BaseEndpoint != nil {
		s.about = fmt.Sprintf("SQS at %s, region %s", *shared.BaseEndpoint, shared.Region)
		s.events = hasEvents(ctx, shared)
	}
	if s.cleaner, err = given.StartCleaner(); err != nil {
		return nil, err
	}
	s.cleaner.Note(s.run)
	openedGiven.Store(s)
	return s, s.check(ctx)
}

// hasEvents reports whether an emulator has SNS. An answer that refuses the credentials is of one that has.
func hasEvents(ctx context.Context, shared aws.Config) bool {
	_, err := awssns.NewFromConfig(shared).ListTopics(ctx, &awssns.ListTopicsInput{})
	said, ok := errors.AsType[smithy.APIError](err)
	return err == nil || ok && (strings.HasPrefix(said.ErrorCode(), "AccessDenied") || strings.HasPrefix(said.ErrorCode(), "Authorization"))
}

// minSecret is the length of a text that is not in the output by chance: emulators take
// "test" for a key.
const minSecret = 16

// check makes one queue, topic and subscription of each kind, to find out about rights before
// the first case.
func (s *givenService) check(ctx context.Context) (err error) {
	probe, err := sqs.New(forTests(sqs.Config{}, &s.shared, s.run+"_0-"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, probe.Close(context.WithoutCancel(ctx))) }()
	for _, queue := range []string{"probe", "probe.fifo"} {
		if err = probe.Provision(ctx, core.Topology{InputQueue: queue, Queues: []string{queue}}); err == nil {
			err = probe.Send(ctx, core.Outgoing{ID: "probe", Queue: queue, Body: []byte("probe")})
		}
		if err == nil && s.events {
			if err = probe.Subscribe(ctx, queue, queue); err == nil {
				err = probe.Send(ctx, core.Outgoing{ID: "probe", Topic: queue, Body: []byte("probe")})
			}
		}
		if err == nil {
			_, err = probe.Purge(ctx, queue)
		}
		if err != nil {
			return fmt.Errorf("try the service: %w; to fix: allow sqs:* and sns:* on names that begin with %s, sqs:ListQueues and sns:ListTopics; docs/running-the-suite.md has the policy", err, given.Prefix)
		}
	}
	return nil
}

// givenHarness is for transports on the given service, with separate queues and topics.
func givenHarness(t *testing.T, name string, cfg sqs.Config) conformance.Harness {
	t.Helper()
	found, err := givenSQS()
	if err != nil {
		t.Fatal(err)
	}
	s := &service{shared: found.shared, prefix: fmt.Sprintf("%s_%d-", found.run, found.tests.Add(1)), network: proxy.NewNetwork(t), secrets: found.secrets, noEvents: !found.events}
	fmt.Printf("%s: on %s, in queues and topics that begin with %s\n", t.Name(), found.about, s.prefix)
	if s.noEvents {
		fmt.Printf("%s: SNS does not answer there: the cases of events are left out\n", t.Name())
	}
	s.setChild(t, name+onGiven)
	return s.harness(name+onGiven, cfg)
}

// removeGiven deletes the queues and topics of runs, by the beginning of their names. It is
// called in the process that cleans up, when the transports' process has ended.
func removeGiven(runs []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), removePatience)
	defer cancel()
	shared, err := loadGiven(ctx)
	if err != nil {
		return err
	}
	var left []string
	for _, run := range runs {
		if err := removeRun(ctx, shared, run); err != nil {
			left = append(left, fmt.Sprintf("%s: queues and topics that begin with %s are left behind: %v; to fix: delete them (aws sqs list-queues --queue-name-prefix %s)", givenVariable, run, err, run))
		}
	}
	if len(left) > 0 {
		return errors.New(strings.Join(left, "\n"))
	}
	return nil
}

// removePatience is how long queues that were deleted are still listed, which is a minute,
// and several times as long.
const removePatience = 5 * time.Minute

// removeRun deletes queues and topics until none is listed: new ones are listed late.
func removeRun(ctx context.Context, shared aws.Config, run string) error {
	queues, topics := awssqs.NewFromConfig(shared), awssns.NewFromConfig(shared)
	for {
		n, err := removeQueues(ctx, queues, run)
		if err != nil {
			return err
		}
		m := 0
		if shared.BaseEndpoint == nil || hasEvents(ctx, shared) {
			if m, err = removeTopics(ctx, topics, run); err != nil {
				return err
			}
		}
		if n+m == 0 {
			return nil
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// removeQueues returns how many were listed.
func removeQueues(ctx context.Context, client *awssqs.Client, run string) (n int, err error) {
	pages := awssqs.NewListQueuesPaginator(client, &awssqs.ListQueuesInput{QueueNamePrefix: &run, MaxResults: aws.Int32(1000)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return n, err
		}
		for _, url := range page.QueueUrls {
			n++
			_, err := client.DeleteQueue(ctx, &awssqs.DeleteQueueInput{QueueUrl: &url})
			if _, gone := errors.AsType[*types.QueueDoesNotExist](err); err != nil && !gone && !isMissingQueue(err) {
				return n, err
			}
		}
	}
	return n, nil
}

// isMissingQueue reports whether an error has the code of a queue that does not exist, which
// some emulators write as the query protocol did.
func isMissingQueue(err error) bool {
	said, ok := errors.AsType[smithy.APIError](err)
	return ok && strings.HasSuffix(said.ErrorCode(), "NonExistentQueue")
}

// removeTopics returns how many were listed. Their subscriptions are deleted with them.
func removeTopics(ctx context.Context, client *awssns.Client, run string) (n int, err error) {
	pages := awssns.NewListTopicsPaginator(client, &awssns.ListTopicsInput{})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return n, err
		}
		for _, topic := range page.Topics {
			arn := aws.ToString(topic.TopicArn)
			if !strings.HasPrefix(arn[strings.LastIndex(arn, ":")+1:], run) {
				continue
			}
			n++
			if _, err := client.DeleteTopic(ctx, &awssns.DeleteTopicInput{TopicArn: &arn}); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}
