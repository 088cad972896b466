//go:build darwin || linux

package asb_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/reprise-go/reprise/conformance"
	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/given"
	"github.com/reprise-go/reprise/transport/asb"
)

// The test TestConformance runs in the namespace that the environment names, instead of on our own server: on Azure, or on an emulator.
// The name of each entity that it makes there begins with that of the run; all of them are deleted at its end.
const (
	// givenVariable is a connection string of the namespace, with the right Manage.
	givenVariable = "REPRISE_TEST_ASB_CONNECTION"
	// adminVariable is the URL of an emulator's administration API. Without it requests go to the host of the connection string.
	adminVariable = "REPRISE_TEST_ASB_ADMIN_ENDPOINT"
)

// onGiven ends the names of harnesses in the given namespace, which run fewer cases and have separate reports.
const onGiven = ", given server"

// givenNamespace is the namespace that the environment names, and the prefix of a run in it.
type givenNamespace struct {
	at      address
	run     string // begins the names of the run's queues and topics
	about   string // the namespace, for people
	cleaner *given.Cleaner
	tests   atomic.Int64
}

func isGiven() bool { return os.Getenv(givenVariable) != "" }

// givenASB returns the namespace that the environment names, after a check that the suite can run in it.
var givenASB = sync.OnceValues(func() (*givenNamespace, error) {
	n, err := openGiven(context.Background())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", givenVariable, err)
	}
	return n, nil
})

// openedGiven is the namespace from the moment on from which entities may be made.
var openedGiven atomic.Pointer[givenNamespace]

// leaveGiven removes the queues and topics of the run. It ends the process if one is left.
func leaveGiven() {
	n := openedGiven.Load()
	if n == nil {
		return // nothing was made
	}
	if err := n.cleaner.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("%s: all that the run has made on %s is removed\n", givenVariable, n.about)
}

// givenAddress returns the address in the environment.
func givenAddress() address { return address{os.Getenv(givenVariable), os.Getenv(adminVariable)} }

// openGiven finds the namespace, starts the process that cleans up, and tries the rights that the suite needs. No error has a key.
func openGiven(ctx context.Context) (*givenNamespace, error) {
	at := givenAddress()
	// It finds the mistakes in the variables, and reaches nothing.
	transport, err := asb.New(at.configured(asb.Config{}, nil))
	if err != nil {
		return nil, fmt.Errorf("%w; Config.ConnectionString is this variable, and Config.AdminEndpoint is %s", err, adminVariable)
	}
	if err := transport.Close(ctx); err != nil {
		return nil, err
	}
	if at.isEmulator() && at.AdminEndpoint == "" {
		return nil, fmt.Errorf("the connection string is that of an emulator (UseDevelopmentEmulator=true), which has its administration API at a separate address; to fix: set %s, to http://localhost:5300 for Microsoft's", adminVariable)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	about, err := describe(ctx, at)
	if err != nil {
		return nil, err
	}
	var id [4]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, err
	}
	n := &givenNamespace{at: at, run: given.Prefix + hex.EncodeToString(id[:]) + "/", about: about}
	if n.cleaner, err = given.StartCleaner(); err != nil {
		return nil, err
	}
	n.cleaner.Note(n.run)
	openedGiven.Store(n)
	return n, n.check(ctx)
}

// describe returns the name and tier of a namespace, after a check of both.
func describe(ctx context.Context, at address) (string, error) {
	client, err := at.admin()
	if err != nil {
		return "", err
	}
	has, err := client.GetNamespaceProperties(ctx, nil)
	about := "Azure Service Bus at " + at.host()
	said, answered := errors.AsType[*azcore.ResponseError](err)
	switch {
	case err == nil && strings.EqualFold(has.SKU, "Basic"):
		return "", fmt.Errorf("the namespace %s is of the tier Basic, which has no topics and sessions; to fix: name one of the tier Standard or Premium", at.host())
	case err == nil:
		return about + ", " + has.SKU, nil
	case answered && (said.StatusCode == http.StatusUnauthorized || said.StatusCode == http.StatusForbidden):
		return "", fmt.Errorf("ask for the properties of the namespace: %w; to fix: copy the connection string again, of a shared access policy of the namespace with the right Manage", err)
	case answered && said.StatusCode < http.StatusInternalServerError:
		return about, nil // an emulator that does not know the request
	}
	return "", fmt.Errorf("ask for the properties of the namespace: %w; to fix: check Endpoint in the connection string, and that this machine reaches its port 443, or the URL in %s if it is set", err, adminVariable)
}

// check makes entities of each kind, to find out about rights before the first case.
func (n *givenNamespace) check(ctx context.Context) (err error) {
	probe, err := asb.New(n.at.configured(forTests(asb.Config{}, n.run+"0-", shortLock), nil))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, probe.Close(context.WithoutCancel(ctx))) }()
	for _, queue := range []string{"probe", "grouped-probe"} {
		if err = probe.Provision(ctx, core.Topology{InputQueue: queue, Queues: []string{queue}}); err == nil {
			err = probe.Subscribe(ctx, queue, "topic-"+queue)
		}
		if err == nil {
			err = probe.Send(ctx, core.Outgoing{ID: "probe", Queue: queue, Body: []byte("probe")}, core.Outgoing{ID: "probe", Topic: "topic-" + queue, Body: []byte("probe")})
		}
		if err == nil {
			_, err = probe.Purge(ctx, queue)
		}
		if err != nil {
			return fmt.Errorf("try the namespace: %w; to fix: use a shared access policy with the right Manage, which has Send and Listen, and let this machine reach the port 5671, or that of the emulator; docs/running-the-suite.md#azure-service-bus has more", err)
		}
	}
	return nil
}

// givenHarness is for transports in the given namespace, with separate queues and topics.
func givenHarness(t *testing.T, name string) conformance.Harness {
	t.Helper()
	found, err := givenASB()
	if err != nil {
		t.Fatal(err)
	}
	s := newService(t, found.at, fmt.Sprintf("%s%d-", found.run, found.tests.Add(1)))
	fmt.Printf("%s: on %s, in queues and topics that begin with %s\n", t.Name(), found.about, s.prefix)
	s.setChild(t)
	return s.harness(name + onGiven)
}

// removeGiven deletes the queues and topics of runs, by the beginning of their names. It is called in the process that cleans up, when the
// transports' process has ended.
func removeGiven(runs []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), removePatience)
	defer cancel()
	client, err := givenAddress().admin()
	if err != nil {
		return fmt.Errorf("%s: %w", givenVariable, err)
	}
	var left []string
	for _, run := range runs {
		if err := removeRun(ctx, client, run); err != nil {
			left = append(left, fmt.Sprintf("%s: queues and topics that begin with %s are left behind: %v; to fix: delete them (az servicebus queue list and az servicebus topic list show them)", givenVariable, run, err))
		}
	}
	if len(left) > 0 {
		return errors.New(strings.Join(left, "\n"))
	}
	return nil
}

// removePatience is several times as long as it takes to delete the entities of a run.
const removePatience = 15 * time.Minute

// removeRun deletes queues and topics until none is listed: a request of the killed process may still be in progress.
func removeRun(ctx context.Context, client *admin.Client, run string) error {
	for {
		// Topics first: their subscriptions forward to the queues.
		topics, err := listTopics(ctx, client, run)
		if err != nil {
			return err
		}
		err = remove(ctx, topics, func(ctx context.Context, name string) error {
			_, err := client.DeleteTopic(ctx, name, nil)
			return err
		})
		if err != nil {
			return err
		}
		queues, err := listQueues(ctx, client, run)
		if err != nil {
			return err
		}
		err = remove(ctx, queues, func(ctx context.Context, name string) error {
			_, err := client.DeleteQueue(ctx, name, nil)
			return err
		})
		if err != nil || len(topics)+len(queues) == 0 {
			return err
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// removers is how many entities are deleted at the same time: a run makes more than a thousand, and the service throttles more clients.
const removers = 4

// remove deletes entities, of which some may not exist any more.
func remove(ctx context.Context, names []string, remove func(ctx context.Context, name string) error) error {
	work := make(chan string, len(names))
	for _, name := range names {
		work <- name
	}
	close(work)
	errs := make([]error, removers)
	var removing sync.WaitGroup
	for i := range removers {
		removing.Go(func() {
			for name := range work {
				if err := remove(ctx, name); err != nil && !isMissing(err) {
					errs[i] = fmt.Errorf("delete %q: %w", name, err)
					return
				}
			}
		})
	}
	removing.Wait()
	return errors.Join(errs...)
}

func isMissing(err error) bool {
	said, ok := errors.AsType[*azcore.ResponseError](err)
	return ok && said.StatusCode == http.StatusNotFound
}

// pageSize is the size of the pages of lists.
const pageSize = 100

// listQueues returns the queues whose names begin with the name of a run.
func listQueues(ctx context.Context, client *admin.Client, run string) (names []string, err error) {
	pages := client.NewListQueuesPager(&admin.ListQueuesOptions{MaxPageSize: pageSize})
	for pages.More() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("list queues: %w", err)
		}
		for _, queue := range page.Queues {
			if strings.HasPrefix(queue.QueueName, run) {
				names = append(names, queue.QueueName)
			}
		}
	}
	return names, nil
}

// listTopics returns the topics whose names begin with the name of a run.
func listTopics(ctx context.Context, client *admin.Client, run string) (names []string, err error) {
	pages := client.NewListTopicsPager(&admin.ListTopicsOptions{MaxPageSize: pageSize})
	for pages.More() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("list topics: %w", err)
		}
		for _, topic := range page.Topics {
			if strings.HasPrefix(topic.TopicName, run) {
				names = append(names, topic.TopicName)
			}
		}
	}
	return names, nil
}
