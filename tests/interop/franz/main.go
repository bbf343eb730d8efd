// A franz-go client, unmodified, against the broker named by its first argument: it writes with every codec, reads as a
// member of a group of each protocol, moves records in transactions, and administers. It says what failed and exits 1.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const perCodec = 200

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	suite := &suite{seeds: os.Args[1], suffix: os.Args[2]}
	for _, step := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"admin", suite.admin},
		{"codecs", suite.codecs},
		{"classic group", func(ctx context.Context) error { return suite.group(ctx, "classic") }},
		{"consumer group", func(ctx context.Context) error { return suite.group(context.WithValue(ctx, "opt_in_kafka_next_gen_balancer_beta", true), "next") }},
		{"transactions", suite.transactions},
		{"abort", suite.abort},
		{"offsets", suite.offsets},
	} {
		if err := step.run(ctx); err != nil {
			fmt.Printf("FAILED %s: %v\n", step.name, err)
			os.Exit(1)
		}
		fmt.Printf("ok %s\n", step.name)
	}
}

type suite struct{ seeds, suffix string }

func (s *suite) topic(name string) string { return name + "-" + s.suffix }

func (s *suite) client(opts ...kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(s.seeds)}, opts...)...)
	if err != nil {
		panic(err)
	}
	return client
}

func (s *suite) admin(ctx context.Context) error {
	client := s.client()
	defer client.Close()
	admin := kadm.NewClient(client)
	retention := "60000"
	for _, name := range []string{"codecs", "source", "target", "aborted"} {
		created, err := admin.CreateTopic(ctx, 3, 1, map[string]*string{"retention.ms": &retention}, s.topic(name))
		if err != nil || created.Err != nil {
			return errors.Join(err, created.Err)
		}
	}
	_, err := admin.CreateTopic(ctx, 3, 1, nil, s.topic("codecs"))
	if !errors.Is(err, kerr.TopicAlreadyExists) {
		return fmt.Errorf("a second creation: %v", err)
	}
	details, err := admin.ListTopics(ctx, s.topic("codecs"))
	if err != nil || len(details[s.topic("codecs")].Partitions) != 3 {
		return fmt.Errorf("listing: %v %v", details, err)
	}
	configs, err := admin.DescribeTopicConfigs(ctx, s.topic("codecs"))
	if err != nil {
		return err
	}
	for _, config := range configs[0].Configs {
		if config.Key == "retention.ms" && *config.Value == retention {
			return nil
		}
	}
	return fmt.Errorf("retention.ms is missing in %v", configs)
}

func (s *suite) codecs(ctx context.Context) error {
	for _, codec := range []kgo.CompressionCodec{
		kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression(),
	} {
		client := s.client(kgo.ProducerBatchCompression(codec), kgo.DefaultProduceTopic(s.topic("codecs")))
		for n := range perCodec {
			record := kgo.KeySliceRecord([]byte(fmt.Sprint(n)), make([]byte, 300))
			record.Headers = []kgo.RecordHeader{{Key: "h", Value: []byte("v")}}
			client.Produce(ctx, record, nil)
		}
		err := client.Flush(ctx)
		client.Close()
		if err != nil {
			return err
		}
	}
	reader := s.client(kgo.ConsumeTopics(s.topic("codecs")))
	defer reader.Close()
	for seen := 0; seen < 5*perCodec; {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("after %d records: %w", seen, err)
		}
		seen += fetches.NumRecords()
	}
	return nil
}

func (s *suite) group(ctx context.Context, kind string) error {
	options := []kgo.Opt{
		kgo.WithContext(ctx), kgo.ConsumerGroup(s.topic(kind)), kgo.ConsumeTopics(s.topic("codecs")), kgo.DisableAutoCommit(),
	}
	one := s.client(options...)
	defer one.Close()
	two := s.client(options...)
	defer two.Close()
	total := 0
	for total < 5*perCodec {
		for _, member := range []*kgo.Client{one, two} {
			short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			fetches := member.PollFetches(short)
			cancel()
			total += fetches.NumRecords()
			if err := member.CommitUncommittedOffsets(ctx); err != nil && !errors.Is(err, kerr.RebalanceInProgress) {
				return err
			}
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%d records: %w", total, ctx.Err())
		}
	}
	return nil
}

func (s *suite) transactions(ctx context.Context) error {
	writer := s.client(kgo.DefaultProduceTopic(s.topic("source")))
	for n := range 100 {
		writer.Produce(ctx, kgo.StringRecord(fmt.Sprint(n)), nil)
	}
	if err := writer.Flush(ctx); err != nil {
		return err
	}
	writer.Close()
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(s.seeds), kgo.TransactionalID(s.topic("tx")), kgo.ConsumerGroup(s.topic("eos")),
		kgo.ConsumeTopics(s.topic("source")), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(),
		kgo.DefaultProduceTopic(s.topic("target")),
	)
	if err != nil {
		return err
	}
	defer session.Close()
	for moved := 0; moved < 100; {
		fetches := session.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		if err := session.Begin(); err != nil {
			return err
		}
		fetches.EachRecord(func(record *kgo.Record) { session.Produce(ctx, kgo.StringRecord(string(record.Value)), nil) })
		committed, err := session.End(ctx, kgo.TryCommit)
		if err != nil {
			return err
		}
		if committed {
			moved += fetches.NumRecords()
		}
	}
	return s.expect(ctx, "target", 100)
}

func (s *suite) abort(ctx context.Context) error {
	client := s.client(kgo.TransactionalID(s.topic("aborts")), kgo.DefaultProduceTopic(s.topic("aborted")))
	defer client.Close()
	for round := range 4 {
		if err := client.BeginTransaction(); err != nil {
			return err
		}
		if err := client.ProduceSync(ctx, kgo.StringRecord("x")).FirstErr(); err != nil {
			return err
		}
		if err := client.EndTransaction(ctx, kgo.TransactionEndTry(round%2 == 0)); err != nil {
			return err
		}
	}
	return s.expect(ctx, "aborted", 2)
}

// expect reads committed records from the beginning to the stable end.
func (s *suite) expect(ctx context.Context, name string, count int) error {
	reader := s.client(kgo.ConsumeTopics(s.topic(name)), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	defer reader.Close()
	seen := 0
	for quiet := 0; quiet < 3; {
		short, cancel := context.WithTimeout(ctx, 700*time.Millisecond)
		found := reader.PollFetches(short).NumRecords()
		cancel()
		seen += found
		if found == 0 {
			quiet++
		}
	}
	if seen != count {
		return fmt.Errorf("%d committed records in %s, not %d", seen, name, count)
	}
	return nil
}

func (s *suite) offsets(ctx context.Context) error {
	client := s.client()
	defer client.Close()
	admin := kadm.NewClient(client)
	lags, err := admin.Lag(ctx, s.topic("classic"))
	if err != nil {
		return err
	}
	if lag := lags[s.topic("classic")]; lag.Error() != nil || lag.Lag.Total() != 0 {
		return fmt.Errorf("lag: %v %v", lag.Error(), lag.Lag.Total())
	}
	if _, err := admin.DeleteGroup(ctx, s.topic("classic")); err != nil {
		return err
	}
	ends, err := admin.ListCommittedOffsets(ctx, s.topic("target"))
	if err != nil {
		return err
	}
	return ends.Error()
}
