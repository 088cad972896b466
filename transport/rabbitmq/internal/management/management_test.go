package management

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/deliverylimit"
)

// client returns a client of an API that the handler implements.
func client(t *testing.T, api http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("app", "hunter2")
	return NewClient(u, "Config.ManagementURL", nil)
}

// A node that fails for a moment, or that does not know the queue yet, is asked again.
func TestQueue_RepeatsFailedRequests(t *testing.T) {
	t.Parallel()
	var requests atomic.Int32
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "app" || password != "hunter2" || r.URL.EscapedPath() != "/api/queues/%2Fshop" {
			t.Errorf("%s asks for %s", user, r.URL)
		}
		switch requests.Add(1) {
		case 1:
			w.WriteHeader(http.StatusInternalServerError)
		case 2:
			fmt.Fprint(w, `{"items":[{"name":"billing.old"}]}`)
		default:
			fmt.Fprint(w, `{"items":[{"name":"billing.old"},{"name":"billing","type":"quorum","durable":true,"arguments":{"x-delivery-limit":7},"policy":"p"}]}`)
		}
	})
	q, err := c.Queue(t.Context(), "/shop", "billing")
	if err != nil {
		t.Fatal(err)
	}
	if q.Name != "billing" || q.Type != "quorum" || !q.Durable || string(q.Arguments[deliverylimit.Argument]) != "7" || q.Policy != "p" {
		t.Errorf("the queue is %+v", q)
	}
	if n := requests.Load(); n != 3 {
		t.Errorf("there were %d requests, want 3", n)
	}
}

func TestPolicies(t *testing.T) {
	t.Parallel()
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `[{"name":"%s","pattern":"^b","apply-to":"queues","priority":3,"definition":{"delivery-limit":9}}]`, strings.ReplaceAll(r.URL.Path, "/", " "))
	})
	for want, get := range map[string]func() ([]*deliverylimit.Policy, error){
		" api policies shop":          func() ([]*deliverylimit.Policy, error) { return c.Policies(t.Context(), "shop") },
		" api operator-policies shop": func() ([]*deliverylimit.Policy, error) { return c.OperatorPolicies(t.Context(), "shop") },
	} {
		list, err := get()
		if err != nil || len(list) != 1 {
			t.Fatalf("%s: %v, %v", want, list, err)
		}
		if limit, ok := list[0].Limit(); list[0].Name != want || list[0].Priority != 3 || limit != 9 || !ok {
			t.Errorf("the policy is %+v", list[0])
		}
	}
}

// An error tells the reason at once, and never the password.
func TestDeletePolicy(t *testing.T) {
	t.Parallel()
	for status, fails := range map[int]bool{http.StatusNoContent: false, http.StatusNotFound: false, http.StatusForbidden: true} {
		c := client(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodDelete || r.URL.EscapedPath() != "/api/policies/%2Fshop/nsb.a%2Fb" {
				t.Errorf("%s %s", r.Method, r.URL)
			}
			w.WriteHeader(status)
		})
		if err := c.DeletePolicy(t.Context(), "/shop", "nsb.a/b"); (err != nil) != fails {
			t.Errorf("the answer %d gives %v", status, err)
		}
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	for status, says := range map[int]string{
		http.StatusUnauthorized: `the user "app"`,
		http.StatusNotFound:     `no virtual host "shop"`,
		http.StatusFound:        "302",
		http.StatusOK:           "RabbitMQ 3.10 or later",
	} {
		c := client(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			fmt.Fprint(w, "no JSON")
		})
		_, err := c.Policies(t.Context(), "shop")
		if !transport.IsPermanent(err) || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%d: %v", status, err)
		}
	}
	c := client(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	if err := c.SetLimit(t.Context(), "shop", &deliverylimit.Policy{Name: "p"}, 5); !transport.IsPermanent(err) || !strings.Contains(err.Error(), "policymaker") {
		t.Errorf("SetLimit = %v", err)
	}
}
