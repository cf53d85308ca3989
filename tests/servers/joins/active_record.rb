# Goal of this file: the lock that ActiveRecord takes while it migrates, by a migration that
# goes on until it is told to end.

require "active_record"
require_relative "serve"

ActiveRecord::Base.establish_connection(adapter: ARGV[2], host: "127.0.0.1", port: PORT, username: "app", database: DATABASE)
ActiveRecord::Migration.verbose = false

# A run of `rails db:migrate`.
class Run
  def initialize
    @begun, @end = Queue.new, Queue.new
  end

  def acquire
    begun, ended = @begun, @end
    migration = Class.new(ActiveRecord::Migration[6.1]) do
      define_method(:up) { begun << true; ended.pop }
    end
    @thread = Thread.new do
      version = (Time.now.to_f * 1e6).to_i
      ActiveRecord::Migrator.new(:up, [migration.new("M#{version}", version)], ActiveRecord::SchemaMigration).migrate
    rescue ActiveRecord::ConcurrentMigrationError
      begun << false
    rescue StandardError => e
      puts "error #{e.message}".tr("\n", " ")
      exit!
    end
    @begun.pop
  end

  def release
    @end << true
    @thread.join
  end
end

serve { Run.new }
