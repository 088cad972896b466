package sqs

import (
	"crypto/md5" //nolint:gosec // the SDK compares it
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/reprise-go/reprise/core"
)

// oldService is a service without fair queues: a standard queue takes no group. It refuses the entry, or the whole
// request.
type oldService struct {
	wholeRequest bool
	requests     int
	accepted     []string // bodies, with their groups
}

const groupRefusal = "Value g for parameter MessageGroupId is invalid. Reason: The request include parameter that is not valid for this queue type"

// Do implements aws.HTTPClient.
func (s *oldService) Do(r *http.Request) (*http.Response, error) {
	status, answer := http.StatusOK, map[string]any{}
	switch _, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), "."); operation {
	case "GetQueueUrl":
		answer["QueueUrl"] = "https://sqs.example.com/1/error"
	case "SendMessageBatch":
		s.requests++
		var in struct {
			Entries []struct {
				ID    string `json:"Id"`
				Body  string `json:"MessageBody"`
				Group string `json:"MessageGroupId"`
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			return nil, err
		}
		var successful, failed []any
		for _, e := range in.Entries {
			if e.Group != "" {
				failed = append(failed, map[string]any{"Id": e.ID, "Code": "InvalidParameterValue", "Message": groupRefusal, "SenderFault": true})
				continue
			}
			sum := md5.Sum([]byte(e.Body)) //nolint:gosec // see above
			successful = append(successful, map[string]any{"Id": e.ID, "MessageId": "1", "MD5OfMessageBody": hex.EncodeToString(sum[:])})
		}
		if answer["Successful"], answer["Failed"] = successful, failed; s.wholeRequest && len(failed) > 0 {
			status, answer = http.StatusBadRequest, map[string]any{"__type": "com.amazonaws.sqs#InvalidParameterValue", "message": groupRefusal}
			break
		}
		for _, e := range in.Entries {
			if e.Group == "" {
				s.accepted = append(s.accepted, e.Body)
			}
		}
	default:
		return nil, errors.New("unexpected " + operation)
	}
	text, err := json.Marshal(answer)
	return &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}}, Body: io.NopCloser(strings.NewReader(string(text))), Request: r,
	}, err
}

// A message of a group reaches a standard queue of a service without fair queues. The queue is asked once.
func TestSend_StandardQueueRefusesGroups(t *testing.T) {
	t.Parallel()
	for _, wholeRequest := range []bool{false, true} {
		t.Run(fmt.Sprint("the whole request: ", wholeRequest), func(t *testing.T) {
			t.Parallel()
			s := &oldService{wholeRequest: wholeRequest}
			service, err := New(Config{AWS: &aws.Config{Region: "us-east-1", HTTPClient: s, Credentials: anyone}, Format: Raw})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = service.Close(t.Context()) }()
			var want []string
			for i := range 3 {
				grouped, other := "grouped "+strconv.Itoa(i), "other "+strconv.Itoa(i)
				want = append(want, grouped, other)
				if err := service.Send(t.Context(), core.Outgoing{ID: "m-1", Queue: "error", GroupKey: "g", Body: []byte(grouped)}, core.Outgoing{ID: "m-2", Queue: "error", Body: []byte(other)}); err != nil {
					t.Errorf("send %d: %v", i, err)
				}
			}
			slices.Sort(want)
			if slices.Sort(s.accepted); !slices.Equal(s.accepted, want) || s.requests != 4 {
				t.Errorf("%d requests have sent %q, want 4 and %q", s.requests, s.accepted, want)
			}
			if err := service.Send(t.Context(), core.Outgoing{ID: "m-3", Queue: "orders.fifo", GroupKey: "g"}); err == nil || !strings.Contains(err.Error(), "MessageGroupId") {
				t.Errorf("a FIFO queue that refuses the group: %v", err)
			}
		})
	}
}
