package configfile_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/configfile"
)

type service struct {
	Database  string
	Timeout   time.Duration
	Main      *host
	Other     host
	Hosts     []host
	Ports     []int
	Debug     *bool
	Any       any
	Opened    time.Time
	Raw       json.RawMessage
	Share     float64
	Timeouts  map[string]time.Duration
	Audit     core.Config
	Messaging configfile.Endpoints
}

// Each variable has the effect of the same value in the file.
func TestDecodeEnv_SetsEveryKindOfSetting(t *testing.T) {
	const file = `{
		"timeouts": {"db.read": "1s"},
		"audit": {"baseTypes": {"orders.placed": ["orders.event"]}, "recoverability": {"delayed": {"numberOfRetries": 9}, "messageTypes": {"Shop.OrderPlaced": {"requeueLimit": 2}}}},
		"messaging": {
			"defaults": {"concurrency": 2, "outageLimit": "1s", "recoverability": {"messageTypes": {"orders.placed": {"requeueLimit": 3}}}},
			"endpoints": {"orders": {"concurrency": 4}, "orders-eu": {}}
		}
	}`
	for variable, asInFile := range map[string]string{
		"SHOP_DATABASE=postgres://db?a=b":         `{"database": "postgres://db?a=b"}`,
		"SHOP_DATABASE=":                          `{"database": ""}`,
		"SHOP_DATABASE=5":                         `{"database": "5"}`,
		"SHOP_TIMEOUT=1m30s":                      `{"timeout": "1m30s"}`,
		"SHOP_MAIN_WAIT=1s":                       `{"main": {"wait": "1s"}}`,
		"SHOP_OTHER_ADDRESS=a,b":                  `{"other": {"address": "a,b"}}`,
		"SHOP_PORTS=1, 2,3":                       `{"ports": [1, 2, 3]}`,
		"SHOP_DEBUG=true":                         `{"debug": true}`,
		"SHOP_ANY=text":                           `{"any": "text"}`,
		"SHOP_ANY=5":                              `{"any": 5}`,
		"SHOP_OPENED=2024-05-06T07:08:09Z":        `{"opened": "2024-05-06T07:08:09Z"}`,
		`SHOP_RAW={"a":1}`:                        `{"raw": {"a":1}}`,
		"SHOP_SHARE=0.5":                          `{"share": 0.5}`,
		"SHOP_TIMEOUTS_DB_READ=2s":                `{"timeouts": {"db.read": "2s"}}`,
		"SHOP_AUDIT_TRANSACTIONS=ReceiveOnly":     `{"audit": {"transactions": "ReceiveOnly"}}`,
		"SHOP_AUDIT_OUTAGE_LIMIT=0s":              `{"audit": {"outageLimit": "0s"}}`,
		"SHOP_AUDIT_BASE_TYPES_ORDERS_PLACED=a,b": `{"audit": {"baseTypes": {"orders.placed": ["a", "b"]}}}`,
		"SHOP_AUDIT_RECOVERABILITY_DELAYED_NUMBER_OF_RETRIES=0":                                    `{"audit": {"recoverability": {"delayed": {"numberOfRetries": 0}}}}`,
		"SHOP_AUDIT_RECOVERABILITY_DELAYED_DELAYS=1s, 1m":                                          `{"audit": {"recoverability": {"delayed": {"delays": ["1s", "1m"]}}}}`,
		"SHOP_AUDIT_RECOVERABILITY_CUSTOM_ERROR_QUEUES=a":                                          `{"audit": {"recoverability": {"customErrorQueues": ["a"]}}}`,
		"SHOP_AUDIT_RECOVERABILITY_MESSAGE_TYPES_SHOP_ORDER_PLACED_MAX_RETRY_AGE=1h":               `{"audit": {"recoverability": {"messageTypes": {"Shop.OrderPlaced": {"maxRetryAge": "1h"}}}}}`,
		"SHOP_MESSAGING_DEFAULTS_CONCURRENCY=7":                                                    `{"messaging": {"defaults": {"concurrency": 7}}}`,
		"SHOP_MESSAGING_ENDPOINTS_ORDERS_CONCURRENCY=7":                                            `{"messaging": {"endpoints": {"orders": {"concurrency": 7}}}}`,
		"SHOP_MESSAGING_ENDPOINTS_ORDERS_EU_OUTAGE_LIMIT=2s":                                       `{"messaging": {"endpoints": {"orders-eu": {"outageLimit": "2s"}}}}`,
		"SHOP_MESSAGING_ENDPOINTS_ORDERS_RECOVERABILITY_MESSAGE_TYPES_ORDERS_PLACED_ERROR_QUEUE=x": `{"messaging": {"endpoints": {"orders": {"recoverability": {"messageTypes": {"orders.placed": {"errorQueue": "x"}}}}}}}`,
	} {
		var got, want service
		for s, read := range map[*service]func() error{
			&got:  func() error { return configfile.DecodeEnv([]string{"PATH=/bin", "SHOPPING=1", variable}, "SHOP", &got) },
			&want: func() error { return configfile.Decode([]byte(asInFile), &want) },
		} {
			if err := configfile.Decode([]byte(file), s); err != nil {
				t.Fatal(err)
			}
			if err := read(); err != nil {
				t.Errorf("%s: %v", variable, err)
			}
		}
		for _, name := range want.Messaging.Names() {
			a, err := got.Messaging.Config(name, core.Config{})
			b, _ := want.Messaging.Config(name, core.Config{})
			if err != nil || !reflect.DeepEqual(a, b) {
				t.Errorf("%s, endpoint %s: %v\n%+v, want\n%+v", variable, name, err, a, b)
			}
		}
		got.Messaging, want.Messaging = configfile.Endpoints{}, configfile.Endpoints{}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n%+v, want\n%+v", variable, got, want)
		}
	}
}

// Variables of one level of retries are one layer, and the file's settings the one below.
func TestDecodeEnv_SeveralVariables(t *testing.T) {
	var c core.Config
	if err := configfile.Decode([]byte(`{"auditQueue": "audit", "recoverability": {"delayed": {"delays": ["1s"]}, "immediate": {"numberOfRetries": 0}}}`), &c); err != nil {
		t.Fatal(err)
	}
	environ := []string{"SHOP_RECOVERABILITY_DELAYED_NUMBER_OF_RETRIES=4", "SHOP_RECOVERABILITY_DELAYED_TIME_INCREASE=5s", "SHOP_RECOVERABILITY_IMMEDIATE_NUMBER_OF_RETRIES=1", "SHOP_CONCURRENCY=3"}
	if err := configfile.DecodeEnv(environ, "SHOP", &c); err != nil {
		t.Fatal(err)
	}
	want := core.Config{AuditQueue: "audit", Concurrency: 3, Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 1}, Delayed: core.Delayed{NumberOfRetries: 4, TimeIncrease: 5 * time.Second}}}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("%+v, want %+v", c, want)
	}
	if err := configfile.DecodeEnv([]string{"PATH=/bin", "SHOP=x"}, "SHOP", &c); err != nil || !reflect.DeepEqual(c, want) {
		t.Errorf("%v, %+v", err, c)
	}
}

func TestDecodeEnv_ErrorsNameTheVariable(t *testing.T) {
	const file = `{
		"timeouts": {"a-b": "1s", "a.b": "1s"},
		"messaging": {"endpoints": {"orders": {}, "billing": {"recoverability": {"messageTypes": {"order": {"requeueLimit": 1}}}}}}
	}`
	for variable, says := range map[string]string{
		"SHOP_TIMEOUT=30":                                    `SHOP_TIMEOUT: timeout is "30", which is no duration`,
		"SHOP_TIMEOUT=":                                      `SHOP_TIMEOUT: timeout is "", which is no duration`,
		"SHOP_TIMEOUT=null":                                  `SHOP_TIMEOUT: timeout is "null", which is no duration`,
		"SHOP_DEBUG=yes":                                     `SHOP_DEBUG: debug is "yes"; it must be true or false`,
		"SHOP_PORTS=1,,2":                                    `SHOP_PORTS: ports[1] is ""; it must be a whole number`,
		"SHOP_AUDIT_CONCURRENCY=0":                           "SHOP_AUDIT_CONCURRENCY: audit.concurrency is 0; write 1 or more",
		"SHOP_AUDIT_CONCURRENCY=many":                        `SHOP_AUDIT_CONCURRENCY: audit.concurrency is "many"; it must be a whole number`,
		`SHOP_AUDIT_CONCURRENCY=1,"sendOnly":true`:           "SHOP_AUDIT_CONCURRENCY: audit.concurrency is ",
		"SHOP_AUDIT_CONCURRENCY=null":                        "SHOP_AUDIT_CONCURRENCY: audit.concurrency is null",
		"SHOP_AUDIT_HANDLER_TIMEOUT=-1s":                     `audit.handlerTimeout is "-1s"; it cannot be negative`,
		"SHOP_AUDIT_TRANSACTIONS=none":                       `audit.transactions is "none"; use None, ReceiveOnly`,
		"SHOP_AUDIT_RECOVERABILITY_DELAYED_TIME_INCREASE=0s": `audit.recoverability.delayed.timeIncrease is "0s"; list such delays`,
		"SHOP_DATABASE=\xff":                                 `SHOP_DATABASE: "\xff" is not UTF-8`,
		"SHOP_DATABSE=x":                                     "SHOP_DATABSE: no setting has this variable; the nearest are SHOP_DATABASE, ",
		"SHOP_database=x":                                    "SHOP_database: no setting has this variable",
		"SHOP_SHARE=<":                                       `SHOP_SHARE: share is "<"; it must be a number`,
		"SHOP_=x":                                            "SHOP_: no setting has this variable",
		"SHOP_HOSTS=[]":                                      "SHOP_HOSTS: no setting has this variable",
		"SHOP_AUDIT_RECOVERABILITY_POLICY=x":                 "SHOP_AUDIT_RECOVERABILITY_POLICY: no setting has this variable",
		"SHOP_AUDIT_RECOVERABILITY_RATE_LIMIT_WAIT=1s":       "the nearest are SHOP_AUDIT_RECOVERABILITY_RATE_LIMIT_CONSECUTIVE_FAILURES, SHOP_AUDIT_RECOVERABILITY_RATE_LIMIT_TIME_TO_WAIT, ",
		"SHOP_MESSAGING_ENDPOINTS_ORDRES_CONCURRENCY=1":      "the nearest are SHOP_MESSAGING_ENDPOINTS_ORDERS_",
		"SHOP_MESSAGING_ENDPOINTS_ORDERS_CONCURENCY=1":       "the nearest are SHOP_MESSAGING_ENDPOINTS_ORDERS_CONCURRENCY, ",
		"SHOP_MESSAGING_ENDPOINTS_ORDERS_CONCURRENCY=x":      `messaging.endpoints["orders"].concurrency is "x"; it must be a whole number`,
		"SHOP_AUDIT_RECOVERABILITY_MESSAGE_TYPES_ORDER_OFF=": "no setting has this variable",
		"SHOP_MESSAGING_ENDPOINTS_ORDERS_RECOVERABILITY_MESSAGE_TYPES_ORDER_REQUEUE_LIMIT=1": "the file must have an endpoint, message type",
		"SHOP_TIMEOUTS_A_B=1s": `SHOP_TIMEOUTS_A_B: it could set timeouts["a-b"] or timeouts["a.b"]; set them in the file`,
	} {
		var s, before service
		for _, s := range []*service{&s, &before} {
			if err := configfile.Decode([]byte(file), s); err != nil {
				t.Fatal(err)
			}
		}
		err := configfile.DecodeEnv([]string{"SHOP_SHARE=0.5", variable}, "SHOP", &s)
		if err == nil || !strings.HasPrefix(err.Error(), "configfile: "+variable[:strings.IndexByte(variable, '=')]+": ") || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v\nwant it to say %s", variable, err, says)
		}
		if !reflect.DeepEqual(s, before) {
			t.Errorf("%s changed the settings to %+v", variable, s)
		}
	}
	t.Run("each wrong variable", func(t *testing.T) {
		err := configfile.DecodeEnv([]string{"SHOP_B=1", "SHOP_CONCURRENCY=x", "SHOP_A=1", "SHOP_AUDIT_QUEUE=a"}, "SHOP", &core.Config{})
		if err == nil || !containsEach(err.Error(), "SHOP_A: ", "SHOP_B: ", "SHOP_CONCURRENCY: ") || strings.Contains(err.Error(), "SHOP_AUDIT_QUEUE: ") {
			t.Errorf("%v", err)
		}
	})
	t.Run("a prefix that can be none", func(t *testing.T) {
		for _, prefix := range []string{"", "shop", "SHOP_", "_SHOP", "1SHOP", "SHOP.EU", "SHÖP"} {
			if err := configfile.DecodeEnv(nil, prefix, &core.Config{}); err == nil || !strings.Contains(err.Error(), "such as SHOP") {
				t.Errorf("%q: %v", prefix, err)
			}
		}
		if err := configfile.DecodeEnv([]string{"MY_SHOP2_CONCURRENCY=1"}, "MY_SHOP2", &core.Config{}); err != nil {
			t.Error(err)
		}
	})
}
